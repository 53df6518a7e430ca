"""Files of a run that were changed by accident: refused by name, and mended where they can be made again."""

import shutil

import pytest
from whole_runs import run

import elman
from elman.cli.main import main
from elman.errors import DataError, RunError
from elman.pipeline.evaluate import evaluate_run


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A finished run whose model is counted in no time."""
    place = tmp_path_factory.mktemp("kept")
    (place / "text.txt").write_text("a cat sat on a mat\nthe dog saw a cat\n" * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        recipe = {"data": {"train": "text.txt"}, "tokenizer": "word", "model": {"type": "ngram", "order": 2}}
        run(recipe)
    return place


@pytest.fixture
def place(kept, tmp_path, monkeypatch):
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def change(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.json", "results.json", "metrics.jsonl", "manifest.json"])
def test_a_changed_file_is_refused_by_name(place, name, capsys):
    change(place / name)
    for use in (lambda: elman.load("run"), lambda: run(None)):
        with pytest.raises(RunError, match=f"run/{name}: .*elman accept run"):
            use()


def test_a_config_cut_at_the_end_of_a_line_is_refused(place):
    """Catches missing sections that become defaults."""
    path = place / "config.yaml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) // 2]))
    with pytest.raises(RunError, match=r"config\.yaml: changed since it was written"):
        elman.load("run")


def test_an_edit_on_purpose_is_accepted(place, capsys):
    path = place / "config.yaml"
    path.write_text(path.read_text().replace("name: ''", "name: edited"))
    with pytest.raises(SystemExit) as end:
        main(["accept", "run"])
    assert not end.value.code
    assert capsys.readouterr().out == "accepted run/config.yaml\n"
    assert elman.load("run").recipe.name == "edited"


def test_a_lost_manifest_is_noticed(place):
    (place / "manifest.json").unlink()
    for use in (lambda: elman.load("run"), lambda: run(None)):
        with pytest.raises(RunError, match=r"manifest\.json: missing"):
            use()


def test_a_run_copied_without_its_empty_folders_goes_on(place):
    """Catches a sample that could not be written, at the end of the training. Tools that copy may leave them out."""
    for name in ("samples", "plots"):
        shutil.rmtree(place / name)
    assert run(None)[-1].kind == "result"
    assert list((place / "samples").iterdir())


def test_data_rebuilt_from_wrong_data_once_is_built_again(place, tmp_path):
    """Catches a store of the wrong data that stayed, so that the right data was refused as well."""
    text = (tmp_path / "text.txt").read_text()
    (tmp_path / "text.txt").write_text(text.replace("dog", "cat"))
    shutil.rmtree(place / "data")
    with pytest.raises(DataError, match="the data has changed since the run began"):
        run(None)
    (tmp_path / "text.txt").write_text(text)
    assert run(None)[-1].kind == "result"


@pytest.mark.parametrize("name", ["train.json", "train.tokens", "train.starts", "valid.tokens"])
def test_damaged_stored_data_is_encoded_again(place, name):
    """Catches ids that the size of their file does not tell from others."""
    before = (place / "data" / name).read_bytes()
    change(place / "data" / name)
    assert run(None)[-1].kind == "result"
    assert (place / "data" / name).read_bytes() == before


def test_damaged_stored_data_is_not_evaluated(place):
    change(place / "data" / "valid.tokens")
    with pytest.raises(DataError, match=r"valid\.tokens: damaged: changed since it was written .*--resume encodes"):
        evaluate_run("run")


def test_changed_facts_of_stored_data_are_not_evaluated(place):
    """Catches another number of bytes, by which bits are divided."""
    path = place / "data" / "valid.json"
    path.write_text(path.read_text().replace('"bytes": ', '"bytes": 9'))
    with pytest.raises(RunError, match=r"data/valid\.json: changed since it was written"):
        evaluate_run("run")
