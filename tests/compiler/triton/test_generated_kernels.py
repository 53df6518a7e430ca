"""Generated kernels in Triton's interpreter, compiled for a Hopper GPU, and on a GPU if there is one.

Laws run in processes of their own, since Triton decides when it is imported whether it interprets.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from cell_cases import CASES
from cell_equivalence import compare
from interpreted_bidirectional_laws import compare as compare_bidirectional

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="kernels are written in Triton")


def run_laws(laws: str, cache: Path, *options: str, interpret: bool) -> None:
    own = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    own |= {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(TESTS.parent)}
    own |= {"TRITON_INTERPRET": "1"} if interpret else {}
    command = [sys.executable, "-m", "pytest", str(HERE / laws), "-x", "-q", "-p", "no:cacheprovider", *options]
    found = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-4000:]
    assert "passed" in found.stdout
    assert "skipped" not in found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("which", ["not several", "several"])
def test_kernels_equal_the_reference_in_the_interpreter(which: str, tmp_path: Path) -> None:
    run_laws("interpreted_kernel_laws.py", tmp_path, "-k", which, "--show-capture=no", interpret=True)


@pytest.mark.slow
def test_bidirectional_launches_equal_two_runs_in_the_interpreter(tmp_path: Path) -> None:
    run_laws("interpreted_bidirectional_laws.py", tmp_path, "--show-capture=no", interpret=True)


@pytest.mark.slow
def test_kernels_compiled_for_a_gpu_use_its_memories_as_intended(tmp_path: Path) -> None:
    run_laws("compiled_kernel_laws.py", tmp_path, interpret=False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_gpu_kernels_equal_the_reference(case) -> None:
    with torch.device("cuda"):
        compare(case, 7, 9, 100, tolerance=2e-4)
        compare(case, 3, 9, 40, [9, 0, 4], tolerance=2e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_gpu_a_bidirectional_launch_equals_two_runs(case) -> None:
    with torch.device("cuda"):
        compare_bidirectional(case, 7, 9, 100, tolerance=2e-4)
        compare_bidirectional(case, 3, 9, 40, [9, 0, 4], tolerance=2e-4)
