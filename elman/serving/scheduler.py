"""Continuous batching: texts enter and leave the running batch at every step.

    submit ─► queue (by request, in turns) ─► rows ─► one step for all rows ─► outputs ─► deliver
                                               ▲                                  │
                                               └── the token that was drawn ──────┘

A row reads its prompt token by token, as it generates; while others generate, rows with a prompt take a few steps more,
so that long prompts neither wait nor make others wait. Rows take as many steps at once as fit into a few milliseconds.
The first token of a text is delivered at once, others together that come within `interval` seconds. One thread
computes; all else only submits and cancels.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

from elman.errors import ElmanError
from elman.serving.generation import Failed, Finished, Generation, Output, Piece, Scored, Snapshot
from elman.serving.prefix_cache import PrefixCache
from elman.serving.rows import Marks, Progress, Rows
from elman.shapes import State

PREFILL_BESIDE = 4  # steps of rows that read their prompt between two steps of all rows
SLICE = 0.005  # seconds for which the rows are left to themselves; where one step takes longer, a step
MANY = 2**30  # steps

log = logging.getLogger("elman.serving")
Deliver = Callable[[list[tuple[Generation, Output]]], None]


class QueueFull(ElmanError):
    pass


class Scheduler:
    """Runs the generations of one model in a thread of its own."""

    def __init__(
        self,
        rows: Rows,
        initial: State,
        eos_id: int,
        start_id: int,
        deliver: Deliver,
        *,
        max_rows: int = 64,
        max_queue: int = 256,
        cache_bytes: int = 2**26,
        interval: float = 0.02,
    ):
        self.interval, self.marks = interval, Marks(eos_id, start_id)
        self.rows, self.initial, self.eos_id, self.start_id = rows, initial, eos_id, start_id
        self.deliver, self.max_rows, self.max_queue = deliver, max_rows, max_queue
        self.cache = PrefixCache(cache_bytes)
        self.running: list[Generation] = []
        self._waiting: OrderedDict[object, deque[Generation]] = OrderedDict()
        self._changed = threading.Condition()
        self._closing = False
        self._telling: dict[Generation, None] = {}  # texts with outputs that were not delivered yet, in order
        self._thread = threading.Thread(target=self._run, name="elman-scheduler", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Texts that are in no row yet."""
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def submit(self, request: object, generations: Sequence[Generation]) -> None:
        """Accepts the texts of a request; raises QueueFull where too many requests wait."""
        with self._changed:
            if self._closing:
                raise QueueFull("the server is stopping")
            if len(self._waiting) >= self.max_queue:
                raise QueueFull(f"{self.max_queue} requests are waiting already")
            self._waiting[request] = deque(generations)
            self._changed.notify()

    def cancel(self, generations: Sequence[Generation]) -> None:
        """Ends texts before their next step, without output."""
        with self._changed:
            for generation in generations:
                generation.cancelled = True
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread after the current step; what still runs fails."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closing or self.running or self._waiting):
                    self._changed.wait()
                if self._closing:
                    break
                entering = self._admit()
            try:
                self._enter(entering)
                self._iterate()
            except Exception as problem:  # no request may wait for ever
                log.exception("a step failed")
                self._fail_all(problem)
            self._flush()
        self._fail_all(ElmanError("the server has stopped"))
        self._flush()

    def _admit(self) -> list[Generation]:
        """Texts for free rows: one of each waiting request in turn."""
        for request in [key for key, texts in self._waiting.items() if all(text.cancelled for text in texts)]:
            del self._waiting[request]
        entering: list[Generation] = []
        while self._waiting and len(self.running) + len(entering) < self.max_rows:
            request, texts = self._waiting.popitem(last=False)
            entering.append(texts.popleft())
            if texts:
                self._waiting[request] = texts
        return [generation for generation in entering if not generation.cancelled]

    def _enter(self, entering: list[Generation]) -> None:
        for generation in entering:
            if generation.state is None and not generation.scored:
                generation.state, generation.cached = self.cache.longest(generation.owner, generation.known)
                generation.read = generation.cached
            state = self.initial if generation.state is None else generation.state
            generation.row = self.rows.add(state, generation.rule())
            generation.state = None  # the row has a copy
            generation.entered = time.monotonic()
            self.running.append(generation)
            self._fork(generation)
            self._begin(generation)

    def _iterate(self) -> None:
        """Some steps of all rows."""
        self._drop([generation for generation in self.running if generation.cancelled])
        if not self.running:
            return
        by_row = {one.row: one for one in self.running}
        one_step = not self.interval or any(one.is_exact for one in self.running)
        over = [by_row[row] for row in self.rows.advance(self.marks, SLICE, 1 if one_step else MANY, PREFILL_BESIDE)]
        due = [one for one in self.running if one.config.stop or self._is_due(one)]
        for generation in dict.fromkeys([*over, *due]):
            self._note(generation, self.rows.progress(generation.row))
        for generation in over:
            if not generation.ended:
                self._begin(generation)

    def _begin(self, generation: Generation) -> None:
        """The next plan. The first token is not kept waiting for others, unless they come at once."""
        self.rows.begin(generation.plan(self.rows.steps))

    def _is_due(self, generation: Generation) -> bool:
        """Whether what a text has to tell may not wait."""
        return generation.ended or time.monotonic() - generation.delivered >= self.interval

    def _note(self, generation: Generation, progress: Progress) -> None:
        """What a row has read, scored and drawn in its turn."""
        read, *found, problem = progress
        scoring = generation.unread > 1
        if generation.unread:
            self._note_read(generation, read)
        if scoring:
            for scored in map(Scored, *found):
                self._tell(generation, scored)
        elif progress.tokens:
            problem = self._note_drawn(generation, *found) or problem
        if problem:
            self._end(generation, Failed(problem))
        elif generation.finished and not generation.unread:
            self._end(generation, Finished(generation.finished, generation.close(), self._snapshot(generation)))

    def _note_read(self, generation: Generation, count: int) -> None:
        generation.read += count
        if generation.start is None and self.cache.keeps(generation.known, generation.read):
            state = self.rows.state(generation.row)
            self.cache.put(generation.owner, generation.known, generation.read, state)
        self._fork(generation)

    def _note_drawn(
        self, generation: Generation, tokens: list[int], log_probs: list[float], tops: list[Any]
    ) -> ElmanError | None:
        try:
            texts = generation.push(tokens)
        except ElmanError as problem:  # longer than the model has positions
            return problem
        for piece in map(Piece, tokens, log_probs, tops, texts):  # up to where the text ends
            self._tell(generation, piece)
        return None

    def _snapshot(self, generation: Generation) -> Snapshot | None:
        """The text so far as a value. The end of a text is not part of it, so that it can be continued."""
        if not generation.keep:
            return None
        last = generation.generated[-1:]
        pending = () if last == [self.eos_id] and generation.finished == "stop" else tuple(last)
        tail = generation.latest()
        tail = tail if pending or not last else tail[:-1]
        return Snapshot(self.rows.state(generation.row), pending, generation.position, tuple(tail))

    def _fork(self, generation: Generation) -> None:
        """Further texts after the same prompt begin where this one has read it, but for its last token."""
        if not generation.forks or generation.unread != 1:
            return
        state, forks = self.rows.state(generation.row), generation.forks
        for fork in forks:
            fork.state, fork.read, fork.cached = state, generation.read, generation.read
        generation.forks = ()
        with self._changed:
            self._waiting[forks[0]] = deque(forks)
            self._waiting.move_to_end(forks[0], last=False)

    def _end(self, generation: Generation, output: Output) -> None:
        for one in (generation, *generation.forks):  # which have failed with it
            self._tell(one, output)
            one.ended = True
        self._drop([generation])

    def _drop(self, generations: list[Generation]) -> None:
        for generation in generations:
            generation.ended = True
            self.running.remove(generation)
            self.rows.stop(generation.row)
            self.rows.remove(generation.row)

    def _fail_all(self, problem: Exception) -> None:
        with self._changed:
            waiting = [generation for texts in self._waiting.values() for generation in texts]
            self._waiting.clear()
        for generation in [*self.running]:
            self._end(generation, Failed(problem))
        for generation in waiting:
            for one in (generation, *generation.forks):
                self._tell(one, Failed(problem))
                one.ended = True

    def _tell(self, generation: Generation, output: Output) -> None:
        generation.outputs.append(output)
        self._telling[generation] = None

    def _flush(self) -> None:
        """Delivers what has waited long enough."""
        box: list[tuple[Generation, Output]] = []
        for generation in [*filter(self._is_due, self._telling)]:
            box += [(generation, output) for output in generation.outputs]
            generation.outputs, generation.delivered = [], time.monotonic()
            del self._telling[generation]
        if box:
            self.deliver(box)
