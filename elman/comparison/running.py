"""Jobs as processes of their own, some at a time: one that fails is told of, and the others go on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import elman
from elman.comparison.plan import Job
from elman.runs import atomic_write

LOOK = 0.5  # seconds between two looks at what runs
GRACE = 60  # seconds that an interrupted training has for its checkpoint
TOLD = 600  # characters at the end of what a failed process said
KILOBYTE = 1 if sys.platform == "darwin" else 1024  # what the system counts memory in


@dataclass(frozen=True)
class Event:
    """What happened to a job; `running` are those under way, `left` is how many wait."""

    kind: Literal["started", "look", "done", "failed"]
    job: Job | None = None
    text: str = ""
    running: list[Job] = field(default_factory=list)
    left: int = 0


class Crew:
    """So many workers, each with an environment of its own: threads, and the accelerator it may see."""

    def __init__(self, workers: int, accelerators: int = 0):
        self.workers = workers
        self.places: SimpleQueue[dict[str, str]] = SimpleQueue()
        for number in range(workers):
            place = {"OMP_NUM_THREADS": "1"}
            if accelerators > 1:
                place["CUDA_VISIBLE_DEVICES"] = _visible(accelerators)[number % accelerators]
            self.places.put(place)
        self.processes: dict[Job, subprocess.Popen[bytes]] = {}
        self.stopping = False

    def carry_out(self, jobs: Iterable[Job]) -> Iterator[Event]:
        """All jobs that are not done yet; interrupted, it lets those under way save themselves before it goes on up."""
        jobs = [job for job in jobs if not job.done]
        with ThreadPoolExecutor(self.workers) as pool:
            waiting: dict[Future[str], Job] = {pool.submit(self._run, job): job for job in jobs}
            told: set[Job] = set()
            try:
                while waiting:
                    ended, _ = wait(waiting, timeout=LOOK, return_when=FIRST_COMPLETED)
                    running = list(self.processes)
                    for job in (job for job in running if job not in told):
                        told.add(job)
                        yield Event("started", job, "", running, len(waiting) - len(running))
                    for future in ended:
                        job, problem = waiting.pop(future), future.result()
                        yield Event("failed" if problem else "done", job, problem, running, len(waiting))
                    yield Event("look", None, "", running, max(0, len(waiting) - len(running)))
            except BaseException:
                self._stop(waiting)
                raise

    def _run(self, job: Job) -> str:
        """Nothing if all went well, else what went wrong."""
        if self.stopping:
            return "interrupted"
        place = self.places.get()
        try:
            return self._train(job, place)
        except OSError as error:
            return f"could not be started: {error}"
        finally:
            self.processes.pop(job, None)
            self.places.put(place)

    def _train(self, job: Job, place: dict[str, str]) -> str:
        command = [sys.executable, "-m", "elman", "train", "--run", str(job.folder), "--resume", "--json"]
        paths = [str(Path(elman.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {**os.environ, **place, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        log = job.folder / "train.log"
        began = time.monotonic()
        with log.open("wb") as told:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=told,
                env=environment,
                start_new_session=True,  # an interrupt at the keyboard is ours to pass on
            )
            self.processes[job] = process
            code, usage = _wait(process)
        if code:
            said = log.read_bytes().decode("utf-8", "replace").strip()[-TOLD:]
            return said or f"ended with code {code}, without a word"
        _keep(job.folder / "usage.json", {"seconds": time.monotonic() - began, **usage})
        return ""

    def _stop(self, waiting: dict[Future[str], Job]) -> None:
        self.stopping = True
        for future in waiting:
            future.cancel()
        running = list(self.processes.values())
        for process in running:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        until = time.monotonic() + GRACE
        while any(_alive(process) for process in running) and time.monotonic() < until:
            time.sleep(0.05)
        for process in running:
            with suppress(ProcessLookupError):
                if _alive(process):
                    process.kill()


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, dict[str, Any]]:
    """The exit code, and what the process took, on systems that tell."""
    if not hasattr(os, "wait4"):
        return process.wait(), {}
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, {"peak_bytes": used.ru_maxrss * KILOBYTE, "cpu_seconds": used.ru_utime + used.ru_stime}


def _alive(process: subprocess.Popen[bytes]) -> bool:
    return process.returncode is None


def _visible(accelerators: int) -> list[str]:
    given = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    return given if len(given) == accelerators else [str(number) for number in range(accelerators)]


def _keep(path: Path, content: Any) -> None:
    atomic_write(path, (json.dumps(content, indent=1) + "\n").encode())
