"""Jobs as processes of their own, some at a time: one that fails is told of, and the others go on."""

import json
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Literal

from elman.comparison.plan import Job
from elman.comparison.workers import Worker
from elman.runs import atomic_write

LOOK = 0.5  # seconds between two looks at what runs
GRACE = 60  # seconds that an interrupted training has for its checkpoint
LATE = 60  # seconds that a folder shared by machines may take to show what another has written
TOLD = 600  # characters at the end of what a failed process said


@dataclass(frozen=True)
class Event:
    """What happened to a job; `running` are those under way, `left` is how many wait."""

    kind: Literal["started", "look", "done", "failed"]
    job: Job | None = None
    text: str = ""
    running: list[Job] = field(default_factory=list)
    left: int = 0


class Crew:
    """All places there are, each with one job at a time."""

    def __init__(self, places: Sequence[Worker]):
        self.places = list(places)
        self.free: SimpleQueue[Worker] = SimpleQueue()
        for one in self.places:
            self.free.put(one)
        self.running: dict[Job, Worker] = {}
        self.stopping = False

    def carry_out(self, jobs: Iterable[Job]) -> Iterator[Event]:
        """All jobs that are not done yet; interrupted, it lets those under way save themselves before it goes on up."""
        jobs = [job for job in jobs if not job.done]
        with ThreadPoolExecutor(len(self.places)) as pool:
            waiting: dict[Future[str], Job] = {pool.submit(self._run, job): job for job in jobs}
            told: set[Job] = set()
            try:
                while waiting:
                    ended, _ = wait(waiting, timeout=LOOK, return_when=FIRST_COMPLETED)
                    running = list(self.running)
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

    def close(self) -> None:
        for one in self.places:
            one.close()

    def _run(self, job: Job) -> str:
        """Nothing if all went well, else what went wrong."""
        if self.stopping:
            return "interrupted"
        place = self.free.get()
        self.running[job] = place
        began = time.monotonic()
        try:
            usage = place.train(job.folder)
        except OSError as error:
            return f"could not be run: {error}"
        finally:
            del self.running[job]
            self.free.put(place)
        code = usage.pop("code")
        if code or not _arrived(job):
            log = job.folder / "train.log"
            said = log.read_bytes().decode("utf-8", "replace").strip()[-TOLD:] if log.exists() else ""
            return said or f"ended with code {code}, without a word"
        usage["seconds"] = time.monotonic() - began
        atomic_write(job.folder / "usage.json", (json.dumps(usage, indent=1) + "\n").encode())
        return ""

    def _stop(self, waiting: dict[Future[str], Job]) -> None:
        self.stopping = True
        for future in waiting:
            future.cancel()
        for one in self.places:
            one.interrupt()
        until = time.monotonic() + GRACE
        while self.running and time.monotonic() < until:
            time.sleep(0.05)
        for one in self.places:
            one.interrupt(signal.SIGKILL)


def _arrived(job: Job) -> bool:
    """Whether what a training that ended well has left can be seen here."""
    until = time.monotonic() + LATE
    while not job.done and time.monotonic() < until:
        list(job.folder.iterdir())  # asks the disk anew where a missing file is remembered as missing
        time.sleep(0.1)
    return job.done
