"""Every Python that a test starts is started here, so that each imports the same packages and uses the same caches."""

import atexit
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fork_server import forked_start

ROOT = Path(__file__).parent.parent
HANG = 1800  # seconds: ends a process that would never end; a slow machine does not get near it


def environment(*paths: str | Path, **variables: str) -> dict[str, str]:
    """This process's environment with PYTHONPATH kept; this checkout comes first, then `paths`. One thread."""
    found = [str(ROOT), *map(str, paths), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    path = os.pathsep.join(dict.fromkeys(filter(None, found)))
    return {**os.environ, "OMP_NUM_THREADS": "1", **variables, "PYTHONPATH": path}


def run(command: list[str], check: bool = False, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run to its end, with text output captured unless `options` of `subprocess.run` say otherwise."""
    usual = {"env": environment(), "capture_output": True, "text": True, "timeout": HANG}
    return subprocess.run(command, check=check, **{**usual, **options})


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    """A new Python process."""
    return run([sys.executable, *arguments], **options)


def run_forked(*arguments: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    """`python -m MODULE ...` or `python -c CODE ...` in a process forked from one that has imported elman."""
    return run([*forked_python(), *arguments], **options)


def run_elman(*words: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    """The command line, in a forked process."""
    return run_forked("-m", "elman", *words, **options)


@contextmanager
def forked_race_workers() -> Iterator[None]:
    """Each worker of a race in this process is forked, not started, as it is in commands that are forked."""
    from elman.comparison.workers import ForkingWorker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkingWorker, "_start", forked_start(forked_python))
        yield


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[Any] | None = None) -> Any:
    """Poll until the condition holds, and return its value; an error if `process` ends before that."""
    until = time.monotonic() + HANG
    while not (found := condition()):
        assert process is None or process.poll() is None, "the process has ended too early"
        assert time.monotonic() < until, "this never happened"
        time.sleep(0.01)
    return found


@cache
def forked_python() -> list[str]:
    """How a command begins that runs like `python -m` or `python -c` but does not import torch and elman again."""
    if not hasattr(os, "fork"):
        return [sys.executable]
    server, folder = str(Path(__file__).with_name("fork_server.py")), tempfile.mkdtemp(prefix="elman-")
    socket = f"{folder}/socket"
    # torch computes the same bits on one thread only
    process = subprocess.Popen(
        [sys.executable, server, "--serve", socket],
        env=environment(),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    def stop() -> None:
        process.stdin.close()
        process.stdout.close()
        process.wait()
        Path(socket).unlink(missing_ok=True)
        Path(folder).rmdir()

    atexit.register(stop)
    return [sys.executable, "-IS", server, socket]
