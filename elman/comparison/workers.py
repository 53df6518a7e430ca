"""Workers on this machine: each training is a process, forked from a process with all imports done where possible."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import elman
from elman.files import open_log

if TYPE_CHECKING:
    import torch

MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes
# environment variables of torchrun
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_", "MASTER_", "TORCHELASTIC_")


class Worker(Protocol):
    """Runs one training after another; `interrupt` signals the current one."""

    def train(self, folder: Path) -> dict[str, Any]:
        """The exit `code`, and resource usage where known. Raises OSError if the process could not be started."""

    def interrupt(self, number: int = signal.SIGINT) -> None: ...

    def close(self) -> None:
        """No more trainings will come."""


class SpawningWorker:
    """Starts a new process for each training."""

    def __init__(self, variables: dict[str, str], modules: Sequence[str | Path] = ()):
        paths = [str(Path(elman.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        # Each training is a single process, also where the race itself runs under torchrun.
        own = {name: value for name, value in os.environ.items() if not name.startswith(TORCHRUN)}
        self.environment = {**own, **variables, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        # -P: a file here may have the name of a standard module
        self.command = [sys.executable, "-P", "-m", "elman.comparison.worker_process"]
        self.command += [word for path in modules for word in ("--read", str(Path(path).absolute()))]
        self.process: int | None = None  # the one that trains

    def train(self, folder: Path) -> dict[str, Any]:
        with os.fdopen(open_log(folder / "train.log"), "wb") as log:
            nothing = subprocess.DEVNULL
            child = self._start([*self.command, "--folder", str(folder)], stdin=nothing, stdout=nothing, stderr=log)
        self.process = child.pid
        try:
            if not hasattr(os, "wait4"):
                return {"code": child.wait()}
            ended = wait_for(child.pid)
            child.returncode = ended["code"]
            return ended
        finally:
            self.process = None

    def interrupt(self, number: int = signal.SIGINT) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process, number)

    def close(self) -> None:
        """Nothing to clean up."""

    def _start(self, command: list[str], **files: Any) -> subprocess.Popen[Any]:
        """In a new session: keyboard interrupts are passed on by the race."""
        return subprocess.Popen(command, env=self.environment, start_new_session=True, **files)


class ForkingWorker(SpawningWorker):
    """Forks trainings from a warm process, which is started with the first and restarted if it dies."""

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


LocalWorker: type[SpawningWorker] = (
    ForkingWorker if sys.platform == "linux" else SpawningWorker
)  # fork is safe on Linux only


def local_workers(workers: int, accelerators: int = 0, modules: Sequence[str | Path] = ()) -> list[SpawningWorker]:
    """Workers on this machine, with accelerators assigned in turn."""
    return [LocalWorker(worker_environment(number, accelerators), modules) for number in range(workers)]


def usual_workers(workers: int, device: "torch.device", modules: Sequence[str | Path] = ()) -> list[SpawningWorker]:
    """So many workers; for 0 one per accelerator where trainings run on these, else one per core."""
    import torch

    accelerators = torch.cuda.device_count() if device.type == "cuda" else 0
    return local_workers(workers or accelerators or _cores(), accelerators, modules)


def worker_environment(number: int, accelerators: int) -> dict[str, str]:
    """Environment variables of a worker: one thread, and one of several accelerators."""
    share = {"OMP_NUM_THREADS": "1"}
    if accelerators > 1:
        given = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        names = given if len(given) == accelerators else [str(one) for one in range(accelerators)]
        share["CUDA_VISIBLE_DEVICES"] = names[number % accelerators]
    return share


def wait_for(process: int) -> dict[str, Any]:
    """Wait for a child process: its exit code, peak memory and CPU time."""
    _, status, used = os.wait4(process, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "peak_bytes": used.ru_maxrss * MAXRSS_UNIT,
        "cpu_seconds": used.ru_utime + used.ru_stime,
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
