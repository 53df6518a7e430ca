"""Concurrency: one writer by lock; readers see complete checkpoints only, also if the writer is killed."""

import os
import random
import signal
import time

import pytest
import torch
from crashing import deadline, in_child, kill, leftovers, start_child
from processes import HANG

from elman import files
from elman.errors import RunError
from elman.runs import lock
from elman.runs.checkpoint import Checkpoint, CheckpointFolder
from elman.runs.run import Run


def uniform(step: int) -> Checkpoint:
    """Every part has its step number, so that a mixture of two checkpoints is detected."""
    value = torch.full((2000,), float(step))
    return Checkpoint(step, {"a": value, "b": value}, {"moment": value}, {"step": step})


def is_uniform(found: Checkpoint) -> bool:
    tensors = [*found.weights.values(), *found.training.values()]
    return found.facts["step"] == found.step and all((tensor == found.step).all() for tensor in tensors)


@pytest.fixture(autouse=True)
def no_hanging():
    with deadline(HANG):
        yield


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", "model: gru\n", {})


def test_lock_error_names_the_holding_process(run):
    def second() -> None:
        with pytest.raises(RunError, match=rf"in use by process {holder}; stop it, or use another --run"), run.lock():
            pass

    holder = os.getpid()
    with run.lock():
        leftover = run.last.folder / f"{files.ASIDE}being-written"
        leftover.mkdir()
        assert in_child(second) == 0
        second()  # in the same process too
        assert leftover.exists()  # it belongs to the living holder
    with run.lock():
        assert not leftover.exists()


def test_lock_is_released_when_its_process_is_killed(run):
    reading, writing = os.pipe()

    def trainer() -> None:
        with run.lock():
            worker = start_child(lambda: time.sleep(HANG))
            os.write(writing, f"{worker}\n".encode())
            time.sleep(HANG)

    child = start_child(trainer)
    worker = int(os.read(reading, 20))
    try:
        with pytest.raises(RunError, match=f"process {child}"), run.lock():
            pass
        kill(child)
        os.kill(worker, 0)
        with run.lock():
            pass
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(reading)
        os.close(writing)


def test_without_file_locks_there_is_a_warning_and_nothing_is_cleaned(run, monkeypatch):
    leftover = run.last.folder / f"{files.ASIDE}somebody"
    leftover.mkdir()
    monkeypatch.setattr(lock, "fcntl", None)
    with pytest.warns(files.RunWarning, match="no file locking here"), run.lock():
        assert leftover.exists()


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 2])
def test_concurrent_readers_see_complete_checkpoints_only(tmp_path, keep, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # faster saves collide more often
    shelf = CheckpointFolder(tmp_path, keep)
    shelf.save(uniform(0))

    def writer() -> None:
        for step in range(1, 100_000):
            shelf.save(uniform(step))

    child = start_child(writer)
    try:
        seen = [0]
        while len(seen) < 500 or len(set(seen)) < 50:  # many openings, and many saves meanwhile
            found = shelf.load()
            assert is_uniform(found)
            assert found.step >= seen[-1]
            seen.append(found.step)
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the writer stopped early"
    finally:
        kill(child)


@pytest.mark.slow
def test_killed_writer_leaves_its_last_reported_checkpoint(run):
    generator = random.Random(0)
    reported = 0
    for _ in range(20):
        reading, writing = os.pipe()

        def writer(start: int = reported, writing: int = writing) -> None:
            with run.lock():
                for step in range(start + 1, start + 100_000):
                    run.last.save(uniform(step))
                    os.write(writing, step.to_bytes(8, "little"))

        child = start_child(writer)
        reported = int.from_bytes(os.read(reading, 8), "little")
        time.sleep(generator.uniform(0, 0.05))
        kill(child)
        os.close(writing)
        while word := os.read(reading, 8):
            reported = int.from_bytes(word, "little")
        os.close(reading)
        found = run.last.load()
        assert is_uniform(found)
        assert reported <= found.step <= reported + 1
        reported = found.step
    with run.lock():
        assert not leftovers(run.folder)
