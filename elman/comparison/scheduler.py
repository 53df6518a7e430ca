"""Runs jobs on a pool of workers, one job per worker at a time; failures are reported and do not stop the others."""

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Literal

from elman.comparison.plan import Job
from elman.comparison.workers import Worker
from elman.errors import RunError
from elman.runs import FileManifest
from elman.runs.lock import wait_for_lock

POLL = 0.5  # seconds between progress events
GRACE = 60  # seconds for an interrupted training to write its checkpoint
SYNC = 60  # seconds until a network file system shows what another machine has written
LOG_TAIL = 600  # characters of the log of a failed process


@dataclass(frozen=True)
class Event:
    """What happened to a job; `running` are the current jobs, `left` is the number of waiting ones."""

    kind: Literal["started", "look", "done", "failed"]
    job: Job | None = None
    text: str = ""
    running: list[Job] = field(default_factory=list)
    left: int = 0


class WorkerPool:
    """All workers, each with one job at a time."""

    def __init__(self, workers: Sequence[Worker]):
        self.workers = list(workers)
        self.free: SimpleQueue[Worker] = SimpleQueue()
        for one in self.workers:
            self.free.put(one)
        self.running: dict[Job, Worker] = {}
        self.stopping = False

    def run_jobs(self, jobs: Iterable[Job], more: Callable[[], Iterable[Job]] = tuple) -> Iterator[Event]:
        """Runs all unfinished jobs, and those that are `more` whenever some have ended; an exception in the caller
        interrupts them, so that they save checkpoints."""
        with ThreadPoolExecutor(len(self.workers)) as pool:
            waiting: dict[Future[str], Job] = {}
            started: set[Job] = set()
            try:
                while True:
                    waiting |= {pool.submit(self._run, job): job for job in jobs if not job.done}
                    if not waiting:
                        break
                    ended, _ = wait(waiting, timeout=POLL, return_when=FIRST_COMPLETED)
                    running = list(self.running)
                    for job in (job for job in running if job not in started):
                        started.add(job)
                        yield Event("started", job, "", running, len(waiting) - len(running))
                    for future in ended:
                        job, problem = waiting.pop(future), future.result()
                        yield Event("failed" if problem else "done", job, problem, running, len(waiting))
                    yield Event("look", None, "", running, max(0, len(waiting) - len(running)))
                    jobs = more() if ended else ()
            except BaseException:
                self._stop(waiting)
                raise

    def close(self) -> None:
        for one in self.workers:
            one.close()

    def _run(self, job: Job) -> str:
        """The error, or empty if the job succeeded."""
        if self.stopping:
            return "interrupted"
        worker = self.free.get()
        self.running[job] = worker
        began = time.monotonic()
        try:
            wait_for_lock(job.folder / "lock", GRACE)  # of a training that a killed race has left
            usage = worker.train(job.folder)
        except (OSError, RunError) as error:
            return f"could not be run: {error}"
        finally:
            del self.running[job]
            self.free.put(worker)
        code = usage.pop("code")
        if code or not _is_visible(job):
            log = job.folder / "train.log"
            tail = log.read_bytes().decode("utf-8", "replace").strip()[-LOG_TAIL:] if log.exists() else ""
            return tail or f"ended with code {code} and wrote no message"
        usage["seconds"] = time.monotonic() - began
        FileManifest(job.folder).write("usage.json", (json.dumps(usage, indent=1) + "\n").encode())
        return ""

    def _stop(self, waiting: dict[Future[str], Job]) -> None:
        self.stopping = True
        for future in waiting:
            future.cancel()
        for one in self.workers:
            one.interrupt()
        until = time.monotonic() + GRACE
        while self.running and time.monotonic() < until:
            time.sleep(0.05)
        for one in self.workers:
            one.interrupt(signal.SIGKILL)


def _is_visible(job: Job) -> bool:
    """Whether the results of a finished training can be seen on this machine."""
    until = time.monotonic() + SYNC
    while not job.done and time.monotonic() < until:
        list(job.folder.iterdir())  # refreshes the directory cache of network file systems
        time.sleep(0.1)
    return job.done
