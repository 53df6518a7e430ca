"""Attempts at work, each in a fork of this process, that die or fail at a file operation or after some time.

A fork has all modules imported: a second instead of five. File operations are those of `elman.files`, which has a hook
before each; a change of a file that bypasses it is recorded.
"""

import json
import math
import mmap
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from elman import files
from elman.figures.figure import Figure
from elman.figures.panels import Lines

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
STANDARD = sysconfig.get_path("stdlib")
PART = 16  # records of a part of predictions, so that a small table has several
TIMED = 0.01  # seconds for which a race generates text to tell its speed
STARTUP = 1  # trials of a sweep before any is pruned, so that a small one has a pruned trial
drawing = True  # else pictures are files with what they would show: most of the time of a short training is drawing
Act = Callable[[], None]


def warm_up() -> None:
    """Imports what attempts need, so that none has to."""
    for module in ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "torch._dynamo"):
        import_module(module)
    for module in ("cli.main", "pipeline.progress", "pipeline.session", "comparison", "pipeline.predict_tables"):
        import_module(f"elman.{module}")
    replace_workers()
    with tempfile.TemporaryDirectory() as aside:  # matplotlib reads its fonts when it first draws
        Figure("", [Lines({"": ([0, 1], [0, 1])})]).save_images(Path(aside) / "figure")


def rehearse(words: list[str]) -> None:
    """Runs a command of `elman` in this process, so that forks of it find all modules imported and all tables made."""
    from elman.cli.main import main

    kept = [os.dup(number) for number in (1, 2)]
    with tempfile.TemporaryFile() as nowhere, suppress(SystemExit):
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
        try:
            main(words)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)


def fail(code: int) -> Act:
    """The system's error of that number."""

    def act() -> None:
        raise OSError(code, os.strerror(code))

    return act


def die() -> None:
    """The end of all processes of an attempt, without a last word."""
    os.killpg(0, signal.SIGKILL)


class Ended(NamedTuple):
    code: int | None  # None: killed
    operations: int
    said: str


class Operations:
    """Counts the file operations of all processes of an attempt, and acts before one of them, or before each from there
    on."""

    def __init__(self, number: int | None = None, act: Act = die, lasting: bool = False):
        self.number, self.act, self.lasting = number, act, lasting
        self.shared = mmap.mmap(-1, 8)

    @property
    def count(self) -> int:
        return int.from_bytes(self.shared[:8], "little")

    def __call__(self, operation: str, *paths: Path) -> None:
        now = self.count + 1
        self.shared[:8] = now.to_bytes(8, "little")
        if self.number is not None and (now == self.number or (self.lasting and now > self.number)):
            self.act()


def attempt(words: list[str], operations: Operations | None = None, seconds: float = math.inf) -> Ended:
    """Runs a command of `elman` in the current folder, killed with its children after so many seconds."""
    return Attempt(words, operations).end(seconds)


class Attempt:
    """A command of `elman`, begun in a fork; `first` is called there before it."""

    def __init__(self, words: list[str], operations: Operations | None = None, first: Act = lambda: None):
        self.operations = operations or Operations()
        log, self.log = tempfile.mkstemp(dir="..")
        self.begun, self.child = time.monotonic(), os.fork()
        if self.child == 0:
            _run(words, self.operations, log, first)
        os.close(log)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(self.child, self.child)  # here and in the child: whoever is first

    def end(self, seconds: float = math.inf) -> Ended:
        ended, status = 0, 0
        while not ended:
            ended, status = os.waitpid(self.child, 0 if math.isinf(seconds) else os.WNOHANG)
            if not ended and time.monotonic() - self.begun >= seconds:
                os.killpg(self.child, signal.SIGKILL)
                ended, status = os.waitpid(self.child, 0)
            if not ended:
                time.sleep(0.002)
        with suppress(ProcessLookupError):
            os.killpg(self.child, signal.SIGKILL)  # workers of a race that outlived it
        code, said = os.waitstatus_to_exitcode(status), Path(self.log).read_text(errors="replace")
        Path(self.log).unlink()
        return Ended(None if code == -signal.SIGKILL else code, self.operations.count, said)


def _run(words: list[str], operations: Operations, log: int, first: Act) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from elman.cli.main import main
        from elman.comparison import inference_cost, pruning
        from elman.pipeline import predict_tables

        predict_tables.PART_RECORDS, pruning.STARTUP, inference_cost.TIMED = PART, STARTUP, TIMED
        if not drawing:
            Figure.image = shown  # type: ignore[method-assign]
        os.fsync = lambda fd: None  # counted, but not waited for: what a process wrote outlives it
        sys.addaudithook(Bypasses(Path.cwd()))
        first()
        files.hook = operations
        main(words)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def shown(figure: Figure, suffix: str) -> bytes:
    """What a picture would show, in the place of its bytes; pages put SVG into their text."""
    return f'<svg width="1pt">{escape(json.dumps(figure.plain()))}</svg>'.encode()


class Bypasses:
    """Says which changes of files in a folder are not made by `elman.files`, and so have no hook."""

    def __init__(self, folder: Path):
        self.folder = str(folder)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        changing = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING)
        below = changing and event not in ("open", "os.truncate") and arguments[-1] != -1  # an open folder
        if changing and not below and isinstance(arguments[0], str | os.PathLike):
            path = os.path.abspath(arguments[0])
            if path.startswith(self.folder + os.sep) and not self._by_files():
                os.write(2, f"{event} of {os.path.relpath(path, self.folder)} bypasses elman.files\n".encode())

    @staticmethod
    def _by_files() -> bool:
        frame = sys._getframe(2)
        while frame.f_back and frame.f_code.co_filename.startswith((STANDARD, "<frozen")):
            frame = frame.f_back
        return frame.f_code.co_filename == files.__file__


class _ForkedWorker:
    """A worker process of a race, forked and in its process group; what `ForkingWorker` uses of `Popen`."""

    def __init__(self) -> None:
        from elman.comparison import worker_process

        hears, tells = os.pipe()
        answers, speaks = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(hears, 0)
            os.dup2(speaks, 1)
            for one in (hears, tells, answers, speaks):
                os.close(one)
            sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
            try:
                worker_process.serve()
            finally:
                os._exit(0)
        os.close(hears)
        os.close(speaks)
        self.stdin, self.stdout = os.fdopen(tells, "w"), os.fdopen(answers)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.returncode = 0
        return self.returncode

    def wait(self) -> None:
        if self.returncode is None:
            os.waitpid(self.pid, 0)
            self.returncode = 0


def replace_workers() -> None:
    """Workers of races in this process, and in forks of it, are forked."""
    from elman.comparison.workers import ForkingWorker

    ForkingWorker._start = forked_worker  # type: ignore[assignment,method-assign]


def forked_worker(worker: Any, command: list[str], **options: Any) -> "subprocess.Popen[Any]":
    return _ForkedWorker()  # type: ignore[return-value]
