"""Answers whole texts with one thread per model, which joins the requests that wait (dynamic batching).

route ──submit──▶ queue (bounded) ──the thread takes all that fit into a batch──▶ trained.predict ──▶ each its own
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from elman.errors import ElmanError
from elman.serving.errors import ApiError, too_busy
from elman.serving.models import ServedModel

LOG = logging.getLogger("elman.serving")
CLOSING = 10.0  # seconds that a closing model waits for its thread


class Options(NamedTuple):
    """How to answer; requests with the same options can be answered together."""

    probabilities: bool
    beam_size: int | None = None

    def search(self) -> dict[str, Any]:
        return {} if self.beam_size is None else {"beam_size": self.beam_size}


class Answered(NamedTuple):
    answers: list[dict[str, Any]]
    tokens: tuple[int, int]
    """Read, and written."""
    waited: float
    """Seconds in the queue."""


@dataclass(eq=False)
class Job:
    lines: Sequence[Any]
    options: Options
    future: "asyncio.Future[Answered]"
    loop: asyncio.AbstractEventLoop
    arrived: float = field(default_factory=time.monotonic)
    begun: float = 0.0

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for it; a client that leaves cancels the future."""
        return not self.future.cancelled()

    def end(self, result: Answered | Exception) -> None:
        """Called by the model's thread."""

        def hand_over() -> None:
            if self.future.done():
                return
            if isinstance(result, Exception):
                self.future.set_exception(result)
            else:
                self.future.set_result(result)

        with suppress(RuntimeError):  # the event loop has ended
            self.loop.call_soon_threadsafe(hand_over)


class Predictor:
    """The thread of a model, and the jobs that wait for it."""

    def __init__(self, served: ServedModel):
        self.served, self.settings = served, served.settings
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._current: list[Job] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"predict {served.id}", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        return len(self._current)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def submit(self, lines: Sequence[Any], options: Options) -> "asyncio.Future[Answered]":
        """The answers to come. Cancelling the future drops the job, if it has not begun."""
        loop = asyncio.get_running_loop()
        job = Job(lines, options, loop.create_future(), loop)
        with self._changed:
            if self._closed:
                raise ending()
            if len(self._queue) >= self.settings.max_queue:
                self._queue = deque(one for one in self._queue if one.wanted)
            if len(self._queue) >= self.settings.max_queue:
                raise too_busy(f"{self.settings.max_queue} requests wait for model {self.served.id!r} already")
            self._queue.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        with self._changed:
            self._closed = True
            left, self._queue = self._queue, deque()
            self._changed.notify()
        for job in left:
            job.end(ending())
        self._thread.join(CLOSING)

    def _run(self) -> None:
        self.served.set_threads()
        while batch := self._next_batch():
            try:
                self._answer(batch)
            except Exception as error:  # one that must not end the thread
                LOG.error("unexpected", exc_info=error, extra={"data": {"model": self.served.id}})
                for job in batch:
                    job.end(error)
            finally:
                self._current = []

    def _next_batch(self) -> list[Job]:
        """The job that waited longest, and others with its options as far as they fit; empty at the end."""
        with self._changed:
            while True:
                self._queue = deque(job for job in self._queue if job.wanted)
                if self._closed or self._queue:
                    break
                self._changed.wait()
            if self._closed:
                return []
            first = self._queue.popleft()
            batch, lines = [first], len(first.lines)
            if not self._draws(first.options):
                for job in list(self._queue):
                    if job.options == first.options and lines + len(job.lines) <= self.settings.max_batch:
                        self._queue.remove(job)
                        batch.append(job)
                        lines += len(job.lines)
            self._current = batch
        now = time.monotonic()
        for job in batch:
            job.begun = now
        return batch

    def _draws(self, options: Options) -> bool:
        """Whether answers are sampled: then they depend on the numbers of their lines, and are computed alone."""
        trained = self.served.trained
        return trained.task.searches and trained.with_search(options.search()).search.choose == "sample"

    def _answer(self, batch: list[Job]) -> None:
        lines = [line for job in batch for line in job.lines]
        try:
            answers = self._predict(lines, batch)
        except ElmanError as error:
            if len(batch) == 1:
                batch[0].end(error)
                return
            for job in batch:  # each alone, so that only what is wrong gets the error
                self._answer([job])
            return
        for job in batch:
            own, answers = answers[: len(job.lines)], answers[len(job.lines) :]
            if len(own) == len(job.lines):  # else everybody has left
                job.end(self._answered(own, job))

    def _predict(self, lines: list[Any], batch: list[Job]) -> list[dict[str, Any]]:
        """The answers, in order; fewer where nobody waits for them any more."""
        options = batch[0].options
        found = []
        for answer in self.served.trained.predict(lines, probabilities=options.probabilities, **options.search()):
            found.append(answer)
            if not any(job.wanted for job in batch):
                break
        return found

    def _answered(self, answers: list[dict[str, Any]], job: Job) -> Answered:
        task = self.served.trained.task
        read, written = zip(*map(task.count_tokens, answers), strict=True)
        return Answered([task.served(one) for one in answers], (sum(read), sum(written)), job.begun - job.arrived)


def ending() -> ApiError:
    return ApiError(503, "the server is ending; try again soon", code="shutting_down", headers={"Retry-After": "5"})
