"""How a training becomes a process: forked by a worker that is warm, or where that cannot be, started from nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import elman

KILOBYTE = 1 if sys.platform == "darwin" else 1024  # what the system counts memory in
# what torchrun tells a process of the others
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_", "MASTER_", "TORCHELASTIC_")


class Worker(Protocol):
    """Where one training after another can run; `interrupt` reaches the one under way."""

    def train(self, folder: Path) -> dict[str, Any]:
        """How it ended: `code`, and what it took if that is known. An OSError where it could not be run at all."""

    def interrupt(self, number: int = signal.SIGINT) -> None: ...

    def close(self) -> None:
        """Nothing more will be asked."""


class Launcher:
    """A place on this machine: each training is a process of its own."""

    def __init__(self, place: dict[str, str], modules: Sequence[str | Path] = ()):
        paths = [str(Path(elman.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        # Each trains alone, also where the race itself has other processes beside it.
        own = {name: value for name, value in os.environ.items() if not name.startswith(TORCHRUN)}
        self.environment = {**own, **place, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        self.command = [
            sys.executable,
            "-P",
            "-m",
            "elman.comparison.worker_process",
        ]  # a file here may be called as Python's
        self.command += [word for path in modules for word in ("--read", str(Path(path).absolute()))]
        self.process: int | None = None  # the one that trains

    def train(self, folder: Path) -> dict[str, Any]:
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
        """There is nothing to end."""

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


BEST: type[Launcher] = Forking if sys.platform == "linux" else Launcher  # no other forks so much in it safely


def here(workers: int, accelerators: int = 0, modules: Sequence[str | Path] = ()) -> list[Launcher]:
    """So many places on this machine, with accelerators given out in turn."""
    return [BEST(own_share(number, accelerators), modules) for number in range(workers)]


def own_share(number: int, accelerators: int) -> dict[str, str]:
    """Environment of the place of that number: one thread, and of several accelerators one."""
    share = {"OMP_NUM_THREADS": "1"}
    if accelerators > 1:
        given = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        names = given if len(given) == accelerators else [str(one) for one in range(accelerators)]
        share["CUDA_VISIBLE_DEVICES"] = names[number % accelerators]
    return share


def outcome(process: int) -> dict[str, Any]:
    """Waits for a child: its exit code, and what it took."""
    _, status, used = os.wait4(process, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "peak_bytes": used.ru_maxrss * KILOBYTE,
        "cpu_seconds": used.ru_utime + used.ru_stime,
    }
