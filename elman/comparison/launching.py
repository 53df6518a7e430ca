"""How a training becomes a process: forked by a worker that is warm, or where that cannot be, started from nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import elman

KILOBYTE = 1 if sys.platform == "darwin" else 1024  # what the system counts memory in


class Launcher:
    """Runs one training after another, each in a process of its own; `interrupt` reaches the one under way."""

    def __init__(self, place: dict[str, str], modules: Sequence[str | Path] = ()):
        paths = [str(Path(elman.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self.environment = {**os.environ, **place, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        self.command = [sys.executable, "-m", "elman.comparison.worker"]
        self.command += [word for path in modules for word in ("--read", str(Path(path).absolute()))]
        self.process: int | None = None  # the one that trains

    def train(self, folder: Path) -> dict[str, Any]:
        """How it ended: `code`, and what it took if that is known."""
        with (folder / "train.log").open("wb") as log:
            nothing = subprocess.DEVNULL
            child = self._start([*self.command, "--folder", str(folder)], stdin=nothing, stdout=nothing, stderr=log)
        self.process = child.pid
        try:
            if not hasattr(os, "wait4"):
                return {"code": child.wait()}
            ended = outcome(child.pid)
            child.returncode = ended["code"]
            return ended
        finally:
            self.process = None

    def interrupt(self, number: int = signal.SIGINT) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process, number)

    def close(self) -> None:
        """Nothing more will be asked."""

    def _start(self, command: list[str], **files: Any) -> subprocess.Popen[Any]:
        """In a session of its own: an interrupt at the keyboard is the race's to pass on."""
        return subprocess.Popen(command, env=self.environment, start_new_session=True, **files)


class Forking(Launcher):
    """By a worker, started with the first training and anew if it dies."""

    worker: subprocess.Popen[str] | None = None

    def train(self, folder: Path) -> dict[str, Any]:
        if self.worker is None or self.worker.poll() is not None:
            self.close()
            self.worker = self._start(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        try:
            self.worker.stdin.write(f"{folder.absolute()}\n")
            self.worker.stdin.flush()
            self.process = int(self.worker.stdout.readline() or 0) or None
            return json.loads(self.worker.stdout.readline() or '{"code": 1}')
        except (BrokenPipeError, ValueError):
            return {"code": 1}
        finally:
            self.process = None

    def close(self) -> None:
        if self.worker and self.worker.stdin and self.worker.stdout:
            with suppress(BrokenPipeError):
                self.worker.stdin.close()
            self.worker.wait()
            self.worker.stdout.close()


def launcher(place: dict[str, str], modules: Sequence[str | Path] = ()) -> Launcher:
    """Only Linux forks a process with so much in it safely."""
    return (Forking if sys.platform == "linux" else Launcher)(place, modules)


def outcome(process: int) -> dict[str, Any]:
    """Waits for a child: its exit code, and what it took."""
    _, status, used = os.wait4(process, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "peak_bytes": used.ru_maxrss * KILOBYTE,
        "cpu_seconds": used.ru_utime + used.ru_stime,
    }
