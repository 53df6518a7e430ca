"""Failures and process deaths at every file operation of a save leave the old or the new state."""

import errno
import os
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from crashing import At, fail, hooked, in_child, leftovers, load_quietly, make, same

from elman import files
from elman.errors import CheckpointError
from elman.runs.checkpoint import Checkpoint, CheckpointFolder
from elman.runs.run import Run


def first(shelf: CheckpointFolder) -> Checkpoint:
    return make(1)


def second(shelf: CheckpointFolder) -> Checkpoint:
    shelf.save(make(1))
    return make(2)


def rotating(shelf: CheckpointFolder) -> Checkpoint:
    shelf.keep = 1
    shelf.save(make(1))
    return make(2)


def again(shelf: CheckpointFolder) -> Checkpoint:
    shelf.save(make(1))
    shelf.save(make(2))
    return make(2, seed=1)


def back(shelf: CheckpointFolder) -> Checkpoint:
    shelf.save(make(1))
    shelf.save(make(9))
    return make(5)


def over_damage(shelf: CheckpointFolder) -> Checkpoint:
    shelf.keep = 1
    shelf.save(make(1))
    shelf.keep = 2
    broken = shelf.save(make(2))
    (broken / "weights.safetensors").write_bytes(b"")
    return make(2)


SCENES = [first, second, rotating, again, back, over_damage]
scenes = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)


@pytest.fixture(autouse=True)
def many_small_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 400)  # so that a save also breaks off in the middle of a file
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # counted and failed like the rest, but not waited for


def sweep(
    tmp_path: Path,
    scene: Callable[[CheckpointFolder], Checkpoint],
    attempt: Callable[[CheckpointFolder, Checkpoint, int], bool | str],
) -> int:
    """Attempt the scene's save with trouble at k = 1, 2, ... until one goes through; the number of operations."""
    for k in count(1):
        run = Run.create(tmp_path / str(k), "", {})
        new = scene(run.last)
        old = load_quietly(run.last)
        done = attempt(run.last, new, k)
        found = load_quietly(run.last)
        is_new = found is not None and same(found, new)
        is_old = old is found or (old is not None and found is not None and same(found, old))
        assert is_new or is_old, f"a third state after operation {k}"
        assert is_new or not done, f"operation {k} failed, and success was reported"
        with run.lock():
            assert not leftovers(run.folder)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", files.RunWarning)
                run.last.save(new)
            assert same(run.last.load(), new)
            run.last.save(make(10))
        assert same(run.last.load(), make(10))
        assert len(list(run.last.folder.iterdir())) <= run.last.keep
        if done == "whole":
            return k - 1
    raise AssertionError


@pytest.mark.slow
@scenes
@pytest.mark.parametrize("kind", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_failure_at_any_operation_leaves_the_old_or_the_new_state(tmp_path, scene, kind):
    messages = []

    def attempt(shelf, new, k):
        hook = At(k, fail(OSError(kind, os.strerror(kind))))
        with hooked(hook), warnings.catch_warnings():
            warnings.simplefilter("ignore", files.RunWarning)
            try:
                shelf.save(new)
            except CheckpointError as error:
                messages.append(str(error))
                return False
        return "whole" if hook.count < k else True

    assert sweep(tmp_path, scene, attempt) > 15
    assert all(str(tmp_path) in message and os.strerror(kind) in message for message in messages)


@pytest.mark.slow
@scenes
def test_an_interrupt_at_any_operation_leaves_the_old_or_the_new_state(tmp_path, scene):
    def attempt(shelf, new, k):
        hook = At(k, fail(KeyboardInterrupt()))
        with hooked(hook), warnings.catch_warnings():
            warnings.simplefilter("ignore", files.RunWarning)
            try:
                shelf.save(new)
            except KeyboardInterrupt:
                return False
        return "whole"

    assert sweep(tmp_path, scene, attempt) > 15


@pytest.mark.slow
@scenes
def test_death_at_any_operation_leaves_the_old_or_the_new_state(tmp_path, scene):
    def attempt(shelf, new, k):
        def save() -> None:
            with hooked(At(k, lambda: os._exit(9))):
                warnings.simplefilter("ignore", files.RunWarning)
                shelf.save(new)

        status = in_child(save)
        assert status in (0, 9)
        return "whole" if status == 0 else False

    assert sweep(tmp_path, scene, attempt) > 15


def test_failed_save_removes_temporary_files(tmp_path):
    for k in count(1):
        shelf = CheckpointFolder(tmp_path / str(k))
        shelf.save(make(1))
        hook = At(k, fail(OSError(errno.ENOSPC, "full")))
        with hooked(hook):
            try:
                shelf.save(make(2))
            except CheckpointError:
                assert not leftovers(shelf.folder)
        if hook.count < k:
            return


@pytest.mark.slow
@pytest.mark.parametrize("die", [False, True])
def test_atomic_write_leaves_the_old_or_new_file_after_any_failure(tmp_path, die):
    path = tmp_path / "tokenizer.json"
    old, new = b"a" * 1000, b"b" * 2000
    for k in count(1):
        path.write_bytes(old)

        def write(k: int = k) -> None:
            with hooked(At(k, (lambda: os._exit(9)) if die else fail(OSError(errno.EIO, "broken")))):
                files.atomic_write(path, new)

        status = in_child(write)
        assert path.read_bytes() in (old, new)
        if status == 0:
            assert path.read_bytes() == new
            assert k > 8
            return


@pytest.mark.slow
@pytest.mark.parametrize("die", [False, True])
def test_interrupted_run_creation_can_be_repeated(tmp_path, die):
    for k in count(1):
        folder = tmp_path / "deep" / str(k)

        def create(k: int = k, folder: Path = folder) -> None:
            with hooked(At(k, (lambda: os._exit(9)) if die else fail(OSError(errno.EIO, "broken")))):
                Run.create(folder, "model: gru\n", {"cpus": 2})

        status = in_child(create)
        if not (folder / "config.yaml").exists():
            assert status != 0
            Run.create(folder, "model: gru\n", {"cpus": 2})
        run = Run.open(folder)
        with run.lock():
            assert not leftovers(folder)
        assert run.config.read_text() == "model: gru\n"
        if status == 0:
            assert k > 20
            return
