"""Commands of elman in forked children, of which nothing but the outcome comes back: exit code, output, time, memory.

A fork of a process that has imported everything takes a hundredth of a second instead of five.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO

FOREIGN = ("Traceback (most recent call last)", "--debug shows the traceback")
REFUSED = ("elman: ", "│")  # elman's own sentence, and the frame of a usage error

_kept: list[tuple[TextIO, TextIO, TextIO]] = []


class Outcome(NamedTuple):
    """How a child ended; `code` is None after a time-out, and negative after a signal."""

    code: int | None
    out: str
    err: str
    seconds: float
    """Of processor time."""
    memory: int
    """Bytes, of its largest resident set."""

    @property
    def fault(self) -> str:
        """What must never happen, whatever a file holds: hang, crash or traceback; empty for a success or a refusal."""
        if self.code is None:
            return "hang"
        if self.code < 0 or self.code > 128:
            return "crash"
        if any(words in self.err for words in FOREIGN):
            return "traceback"
        if self.code not in (0, 1, 2) or (self.code and not self.refusal):
            return "no sentence"
        return ""

    @property
    def refusal(self) -> str:
        """The sentence that a refused command ends with."""
        lines = [line for line in self.err.splitlines() if line.startswith(REFUSED)]
        return lines[-1] if self.code and lines else ""

    @property
    def warned(self) -> bool:
        """Whether a command that succeeded said that something was worked around."""
        return any(line.startswith("elman: ") for line in self.err.splitlines())


def in_child(work: Callable[[], int | None], folder: Path, seconds: float = 20.0) -> Outcome:
    """Runs `work` in a forked child inside `folder`, and kills it after so many seconds."""
    child = os.fork()
    if not child:
        os.setsid()
        os._exit(_run_here(work, folder))
    process = os.pidfd_open(child)
    code: int | None = None
    try:
        ended = _wait(process, child, seconds)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        if ended:
            code = os.waitstatus_to_exitcode(status)
    finally:
        os.close(process)
    memory, seconds = usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime
    texts = [path.read_bytes()[: 2**20].decode(errors="replace") for path in _streams(folder)]
    return Outcome(code, texts[0], texts[1], seconds, memory)


class Worker:
    """A forked child that runs one piece of work after another, three times as fast as a fork for each. A new one takes
    over after a crash, a hang or `LIFE` pieces."""

    LIFE = 100

    def __init__(self, run: Callable[[list[str]], int | None]):
        self.run, self.child, self.left = run, 0, 0

    def __call__(self, words: list[str], folder: Path, seconds: float = 20.0) -> Outcome:
        """As `in_child`, for the work `run(words)`; memory is not measured."""
        if not self.left:
            self.close()
            self._start()
        self.left -= 1
        begun = time.monotonic()
        os.write(self.asked, json.dumps([words, str(folder)]).encode() + b"\n")
        ready = _wait(self.answered, self.child, seconds)
        answer = os.read(self.answered, 100) if ready else b""
        code = int(answer) if answer else None
        if not answer:
            if not ready:
                os.kill(self.child, signal.SIGKILL)
            _, status = os.waitpid(self.child, 0)
            self.child = self.left = 0
            code = os.waitstatus_to_exitcode(status) if ready else None
        texts = [path.read_bytes()[: 2**20].decode(errors="replace") for path in _streams(folder)]
        return Outcome(code, texts[0], texts[1], time.monotonic() - begun, 0)

    def close(self) -> None:
        if self.child:
            os.close(self.asked)
            os.close(self.answered)
            os.waitpid(self.child, 0)
        self.child = self.left = 0

    def _start(self) -> None:
        self.left = self.LIFE
        requests, self.asked = os.pipe()
        self.answered, answers = os.pipe()
        self.child = os.fork()
        if self.child:
            os.close(requests)
            os.close(answers)
            return
        os.close(self.asked)
        os.close(self.answered)
        os.setsid()
        with open(requests, "rb") as lines:
            for line in lines:
                words, folder = json.loads(line)
                os.write(answers, str(_run_here(partial(self.run, words), Path(folder))).encode())
        os._exit(0)


def _wait(descriptor: int, child: int, seconds: float) -> list[int]:
    """Waits for an answer or the end of a child, for so many seconds of its processor time: where others take all of
    it, ten times as long in all. Empty if nothing came."""
    begun, used = time.monotonic(), _processor_seconds(child)
    while True:
        ready, _, _ = select.select([descriptor], [], [], min(1.0, seconds))
        waited = time.monotonic() - begun
        if ready or waited >= 10 * seconds or _processor_seconds(child) - used >= seconds:
            return ready


def _processor_seconds(process: int) -> float:
    """Of a process and the children that it has waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _streams(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(folder.name + ".out"), folder.with_name(folder.name + ".err")


def _run_here(work: Callable[[], int | None], folder: Path) -> int:
    """The exit code of work in this process, with its streams in files beside the folder."""
    code = 70
    _kept.append((sys.stdin, sys.stdout, sys.stderr))  # whose end would close the new files
    try:
        for number, path in enumerate((Path(os.devnull), *_streams(folder))):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
            file = os.open(path, flags, 0o600)
            os.dup2(file, number)
            os.close(file)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.chdir(folder)
        code = work() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


def command(*words: str) -> Callable[[], int | None]:
    """A command line as work for a child."""

    def work() -> None:
        from elman.cli.main import main

        main(list(words))

    return work


def import_everything() -> None:
    """Imports what commands import late, so that no child has to."""
    import importlib
    import pkgutil

    import torch

    import elman

    for found in pkgutil.walk_packages(elman.__path__, "elman."):
        if not found.name.endswith("__main__") and not found.name.startswith(("elman.bench", "elman.compiler.triton")):
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)
    for name in ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.pyplot"):
        importlib.import_module(name)
    for name in ("pandas", "pyarrow.parquet", "sacrebleu"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    torch.set_num_threads(1)
