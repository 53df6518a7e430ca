"""Shared by crash tests: recognizable checkpoints, injected failures, and child processes that may die."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from elman import files
from elman.runs.checkpoint import Checkpoint, CheckpointFolder


def make(step: int, seed: int = 0, size: int = 40) -> Checkpoint:
    generator = torch.Generator().manual_seed(1000 * step + seed)
    weights = {"embedding": torch.randn(size, 4, generator=generator), "bias": torch.randn(4, generator=generator)}
    training = {"moment": torch.randn(size, 4, generator=generator), "generator": generator.get_state()[:64]}
    return Checkpoint(step, weights, training, {"epoch": step // 10, "seed": seed, "loss": 1 / (step + 3)})


def same(one: Checkpoint, other: Checkpoint) -> bool:
    def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
        return a.keys() == b.keys() and all(a[key].dtype == b[key].dtype and a[key].equal(b[key]) for key in a)

    plain = (one.step, one.facts) == (other.step, other.facts)
    return plain and equal(one.weights, other.weights) and equal(one.training, other.training)


def load_quietly(shelf: CheckpointFolder) -> Checkpoint | None:
    """The newest checkpoint; None in an empty folder (only damaged checkpoints still raise)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", files.RunWarning)
        return None if shelf.newest() is None else shelf.load()


@contextmanager
def hooked(hook: Callable[..., None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "hook", hook)
        yield


class At:
    """A hook that acts at operation number k; `count` says how many operations there were."""

    def __init__(self, k: int, act: Callable[[], None]):
        self.k, self.act, self.count = k, act, 0

    def __call__(self, operation: str, *paths: Path) -> None:
        self.count += 1
        if self.count == self.k:
            self.act()


def fail(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def start_child(function: Callable[[], None]) -> int:
    """Fork; the child exits with 0, or with 1 and a traceback."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads; the child is single-minded
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def in_child(function: Callable[[], None]) -> int:
    """The exit status of a child that ran `function`."""
    return os.waitstatus_to_exitcode(os.waitpid(start_child(function), 0)[1])


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Fail after a time limit instead of hanging."""

    def ring(*_: object) -> None:
        raise AssertionError(f"still not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob(f"{files.ASIDE}*"))
