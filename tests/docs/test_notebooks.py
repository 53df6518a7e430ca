"""The notebooks run from top to bottom, and are stored small, in order and without errors."""

import importlib.util
import json
from pathlib import Path

import pytest
from processes import environment, forked_python

nbformat = pytest.importorskip("nbformat", reason="needs pip install '.[docs]'")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_small_with_the_outputs_of_one_run(path: Path) -> None:
    assert path.stat().st_size < 200_000
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]
    assert "/tmp/" not in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of its own, a forked process; the assertions in its cells hold. Catches a wrong name in a cell."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    kernel = {
        "argv": [*forked_python(), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "forked",
    }
    (tmp_path / "kernels" / "forked").mkdir(parents=True)
    (tmp_path / "kernels" / "forked" / "kernel.json").write_text(json.dumps(kernel))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    spec = importlib.util.spec_from_file_location("run_notebooks", ROOT / "docs" / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    book = module.execute(path, "forked")
    assert any(cell.get("outputs") for cell in book.cells)
