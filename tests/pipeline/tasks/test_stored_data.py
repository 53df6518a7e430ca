"""A run is evaluated on the data encoded in its folder: paths and addresses in its config.yaml are not opened."""

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from task_data import TEXTS, settings_of

from elman.config import override
from elman.errors import ConfigError, DataError, RunError
from elman.jsonable import jsonable
from elman.pipeline import load, train
from elman.pipeline.evaluate import evaluate_run
from elman.pipeline.recipe import read_recipe, write_recipe
from elman.runs import Run

every_task = pytest.mark.parametrize("task", TEXTS)


@pytest.fixture
def moved(runs: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a run, elsewhere."""
    return Path(shutil.copytree(runs[getattr(request, "param", "classify")], tmp_path / "run"))


def edited(run: Path, **changes: Any) -> Path:
    """With other settings, as a stranger could have written them."""
    opened = Run.open(run)
    settings = override(
        read_recipe(opened.config, complete=True).plain(), {k.replace("__", "."): v for k, v in changes.items()}
    )
    opened.manifest.write("config.yaml", write_recipe(read_recipe(settings, complete=True)).encode())
    return run


@every_task
def test_the_scores_are_those_of_training_though_the_data_moved(runs, tmp_path, task, monkeypatch) -> None:
    run = edited(Path(shutil.copytree(runs[task], tmp_path / "run")), **dict.fromkeys(
        ("data__train", "data__valid", "data__test"), "/nowhere/secret.tsv"
    ))  # fmt: skip
    monkeypatch.setattr(socket.socket, "connect", None)
    expected = json.loads((runs[task] / "results.json").read_text())
    for split in ("valid", "test"):
        found = evaluate_run(run, split=split)
        assert jsonable(found) == {**expected[split], "repairs": [], "notes": found["notes"]}


@pytest.mark.parametrize("address", ["hub:evil/data", "/etc/passwd", "/**/*", "/dev/zero"])
def test_nothing_is_looked_up(moved: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edited(moved, data__train=address, data__test=None)
    opened: list[str] = []
    monkeypatch.setattr("elman.corpus.sources._locate", lambda place, *_: opened.append(place) or [])
    monkeypatch.setattr("elman.corpus.corpus.digest", lambda source: opened.append(source) or "")
    evaluate_run(moved)
    load(moved).predict("a b")
    assert not opened


def test_a_split_that_the_run_does_not_hold_must_be_named(moved: Path) -> None:
    (moved / "data" / "test.json").unlink()
    with pytest.raises(DataError, match=r"data: the run does not hold this text \(name it with --data\)"):
        evaluate_run(moved)
    (moved / "data" / "corpus.json").unlink()
    with pytest.raises(DataError, match=r"data: the run does not hold this text \(name it with --data\)"):
        evaluate_run(moved)


@pytest.mark.parametrize(
    "facts", ["[]", "[1]", "{}", "{", '{"document": "line", "boundary": "reset", "fingerprints": {"secret": "1"}}']
)
def test_hostile_facts_of_the_data_are_one_error(moved: Path, facts: str) -> None:
    (moved / "data" / "corpus.json").write_text(facts)
    Run.open(moved).manifest.accept()
    with pytest.raises((ConfigError, DataError), match=r"corpus\.json"):
        evaluate_run(moved)


@pytest.mark.parametrize("moved", ["translate"], indirect=True)
@pytest.mark.parametrize("pairs", ["1", "[1]", '[["a"]]', '[["a", "b", ["x"]]]', '[[1, "b", []]]'])
def test_hostile_pairs_are_one_error(moved: Path, pairs: str) -> None:
    (moved / "data" / "test.pairs.json").write_text(pairs)
    Run.open(moved).manifest.accept()
    with pytest.raises(DataError, match=r"test\.pairs\.json: not pairs of texts"):
        evaluate_run(moved)


@pytest.mark.parametrize("name", ["tokenizer.json", "labels.json", "metrics.jsonl", "config.yaml", "data/test.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_regular_files_are_read(moved: Path, name: str, kind: str) -> None:
    """Catches: a pipe as tokenizer was waited for, and a device was read until memory ended."""
    (moved / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(moved / name)
    else:
        (moved / name).symlink_to("/dev/zero")
    with pytest.raises(RunError, match=f"{name}: a pipe or a device"):
        load(moved)


def test_links_to_files_are_read(moved: Path, tmp_path: Path) -> None:
    """As in the cache of a hub, where runs are links."""
    (moved / "tokenizer.json").rename(tmp_path / "blob")
    (moved / "tokenizer.json").symlink_to(tmp_path / "blob")
    load(moved)


def test_the_run_that_another_started_from_is_not_opened(data: Any, tmp_path: Path, runs: dict[str, Path]) -> None:
    pretrained = Path(shutil.copytree(runs["translate"], tmp_path / "pretrained"))
    settings = {**settings_of("translate", data), "start_from": str(pretrained)}
    settings = {key: value for key, value in settings.items() if not key.startswith(("model", "tokenizer"))}
    train(overrides=settings, run=tmp_path / "run")
    shutil.rmtree(pretrained)
    load(tmp_path / "run").predict("a b")
    train(run=tmp_path / "run", resume=True)
