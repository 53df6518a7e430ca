"""A run writes into its own folder only: not through links, which a stranger's folder may hold."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from elman import files
from elman.comparison.config import Race
from elman.comparison.race import RaceRun
from elman.errors import RunError
from elman.runs import MetricsLog, Run
from elman.runs.lock import file_lock

INSIDE = ["lock", "metrics.jsonl", "config.yaml", "data/train.tokens", "samples/a.txt", "last/step-00000001"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", "model: gru\n", {})


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A file of someone else."""
    (tmp_path / "other").write_text("mine\n")
    return tmp_path / "other"


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_what_is_no_file_or_folder_is_rejected_before_anything_is_written(
    run: Run, other: Path, name: str, kind: str
) -> None:
    path = run.folder / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(other if kind == "link" else other.parent / "new")
    before = sorted(run.folder.rglob("*"))
    with pytest.raises(RunError, match=rf"{name}: a (symbolic link|pipe)[^\n]*$"), run.lock():
        pass
    assert other.read_text() == "mine\n"
    assert not (other.parent / "new").exists()
    assert sorted(run.folder.rglob("*")) == before


@pytest.mark.parametrize("name", ["samples", "data", "best", "last", "plots"])
@pytest.mark.parametrize("new", [False, True])
def test_a_linked_subfolder_is_rejected(run: Run, tmp_path: Path, name: str, new: bool) -> None:
    """Also where a run is to be created: an empty folder elsewhere seemed to be the run's own."""
    (tmp_path / "elsewhere").mkdir()
    (run.folder / name).rmdir()
    (run.folder / name).symlink_to(tmp_path / "elsewhere")
    if new:
        run.config.unlink()
    with pytest.raises(RunError, match=f"{name}: a symbolic link"), ExitStack() as stack:
        Run.create(run.folder, "model: gru\n", {}) if new else stack.enter_context(run.lock())
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_linked_run_folder_is_locked(run: Run, tmp_path: Path) -> None:
    """The user's own link to a larger disk."""
    (tmp_path / "link").symlink_to(run.folder)
    with Run.open(tmp_path / "link").lock():
        assert (run.folder / "lock").read_text().strip() == str(os.getpid())


@pytest.mark.parametrize(
    "write",
    [
        lambda path: files.append(path, b"x"),
        lambda path: files.truncate(path, 0),
        files.sync_file,
        lambda path: MetricsLog(path).write({}),
        lambda path: file_lock(path).__enter__(),
    ],
)
def test_no_file_is_opened_for_writing_through_a_link(other: Path, write: Callable[[Path], None]) -> None:
    """Also one that was put there after the folder was checked."""
    link = other.with_name("link")
    link.symlink_to(other)
    with pytest.raises(RunError, match=r"link: cannot (open|sync).*: Too many levels of symbolic links"):
        write(link)
    assert other.read_text() == "mine\n"


@pytest.mark.parametrize("name", ["race.yaml", "gru/seed-1/train.log", "prepared/tokenizer.json", "report.html"])
def test_a_race_with_links_is_not_resumed(tmp_path: Path, other: Path, name: str) -> None:
    path = tmp_path / "race" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(other)
    with pytest.raises(RunError, match=f"{name}: a symbolic link"):
        RaceRun(Race.make({}), tmp_path / "race", resume=True)
    assert other.read_text() == "mine\n"
