"""How a training becomes a process: forked by a worker that is warm, or where that cannot be, started from nothing."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import elman
from elman.comparison.worker import outcome


class Launcher:
    """Runs one training after another, each in a process of its own; `interrupt` reaches the one under way."""

    def __init__(self, place: dict[str, str]):
        paths = [str(Path(elman.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self.environment = {**os.environ, **place, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        self.process: int | None = None  # the one that trains

    def train(self, folder: Path) -> dict[str, Any]:
        """How it ended: `code`, and what it took if that is known."""
        command = [sys.executable, "-m", "elman", "train", "--run", str(folder), "--resume", "--json"]
        with (folder / "train.log").open("wb") as log:
            child = self._start(command, stdout=subprocess.DEVNULL, stderr=log, stdin=subprocess.DEVNULL)
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
            command = [sys.executable, "-m", "elman.comparison.worker"]
            self.worker = self._start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


def launcher(place: dict[str, str]) -> Launcher:
    """Only Linux forks a process with so much in it safely."""
    return Forking(place) if sys.platform == "linux" else Launcher(place)
