"""Continuous batching: texts enter and leave the running batch at every step.

    submit ─► queue (by request, in turns) ─► rows ─► one step for all rows ─► outputs ─► deliver
                                               ▲                                  │
                                               └── the token that was drawn ──────┘

A row reads its prompt token by token, as it generates; while others generate, rows with a prompt take a few steps more,
so that long prompts neither wait nor make others wait. One thread computes; all else only submits and cancels.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from elman.errors import ElmanError
from elman.serving.generation import Failed, Finished, Generation, Output, Piece, Scored, Snapshot
from elman.serving.prefix_cache import PrefixCache
from elman.serving.rows import Choice, Draw, Feed, Plan, Rows
from elman.shapes import State

PREFILL_BESIDE = 4  # prompt tokens that are read between two steps of rows that generate
PREFILL_ALONE = 64  # the same where no row generates

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
    ):
        self.rows, self.initial, self.eos_id, self.start_id = rows, initial, eos_id, start_id
        self.deliver, self.max_rows, self.max_queue = deliver, max_rows, max_queue
        self.cache = PrefixCache(cache_bytes)
        self.running: list[Generation] = []
        self._waiting: OrderedDict[object, deque[Generation]] = OrderedDict()
        self._changed = threading.Condition()
        self._closing = False
        self._outbox: list[tuple[Generation, Output]] = []
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

    def _iterate(self) -> None:
        """One step of every row, after some steps of rows whose prompts are long; or where that is faster a plan of
        several steps for each."""
        self._drop([generation for generation in self.running if generation.cancelled])
        if self.rows.steps > 1 and self.running:
            self._run_plans([*self.running])
            return
        prompts = [generation for generation in self.running if generation.unread > 1]
        for _ in range(PREFILL_BESIDE if len(prompts) < len(self.running) else PREFILL_ALONE):
            if not prompts or self._interrupted(prompts):
                break
            self._step(prompts)
            prompts = [generation for generation in prompts if generation.unread > 1 and not generation.ended]
        if self.running:
            self._step(self.running)
            self._sample([generation for generation in self.running if not generation.unread])

    def _interrupted(self, prompts: list[Generation]) -> bool:
        return self._closing or any(generation.cancelled for generation in prompts)

    def _step(self, generations: list[Generation]) -> None:
        """Reads the next token of each: a known one, or the one that was drawn last."""
        feeds = [Feed(one.row, self._input_of(one), one.wants_logits or not one.unread) for one in generations]
        self.rows.step(feeds)
        reading = [generation for generation in generations if generation.unread]
        for generation in reading:
            self._note_read(generation, 1)
        scored = [generation for generation in reading if generation.scored and generation.unread]
        for generation, choice in zip(scored, self._choices([one.score_next() for one in scored]), strict=True):
            self._take_scored(generation, choice)

    def _note_read(self, generation: Generation, count: int) -> None:
        """The row has read some more tokens of its prompt, at most up to where its state is wanted."""
        generation.read += count
        if generation.start is None and self.cache.keeps(generation.known, generation.read):
            state = self.rows.state(generation.row)
            self.cache.put(generation.owner, generation.known, generation.read, state)
        self._fork(generation)

    def _take_scored(self, generation: Generation, choice: Choice | ElmanError) -> None:
        if isinstance(choice, ElmanError):
            self._end(generation, Failed(choice))
        else:
            self._outbox.append((generation, Scored(*choice)))

    def _input_of(self, generation: Generation) -> int:
        token = generation.known[generation.read] if generation.unread else generation.generated[-1]
        return self.start_id if token == self.eos_id else token

    def _choices(self, draws: list[Draw]) -> list[Choice | ElmanError]:
        return self.rows.choose(draws) if draws else []

    def _sample(self, generations: list[Generation]) -> None:
        """The next token of each text that has read its prompt."""
        for generation in [one for one in generations if not one.limit]:
            self._end(generation, Finished("length", "", self._snapshot(generation)))
        drawing = [generation for generation in generations if generation.limit]
        for generation, choice in zip(drawing, self._choices([one.draw() for one in drawing]), strict=True):
            self._take_drawn(generation, choice)

    def _take_drawn(self, generation: Generation, choice: Choice | ElmanError) -> None:
        if isinstance(choice, ElmanError):
            self._end(generation, Failed(choice))
            return
        try:
            text = generation.push(choice.token)
        except ElmanError as problem:  # longer than the model has positions
            self._end(generation, Failed(problem))
            return
        self._outbox.append((generation, Piece(choice.token, choice.log_prob, choice.top, text)))
        if reason := generation.finished:
            self._end(generation, Finished(reason, generation.close(), self._snapshot(generation)))

    def _run_plans(self, generations: list[Generation]) -> None:
        """Several steps of every row at once: the rest of its prompt, and the tokens after it."""
        plans = [self._plan(generation) for generation in generations]
        results = self.rows.extend(plans, self.eos_id, self.start_id)
        for generation, plan, choices in zip(generations, plans, results, strict=True):
            if generation.unread:
                self._note_read(generation, len(plan.tokens))
            for number, choice in enumerate(choices):
                if number < len(plan.targets):
                    self._take_scored(generation, choice)
                else:
                    self._take_drawn(generation, choice)
                if generation.ended:  # by a stop string: what was drawn after it is dropped
                    break
            if not generation.ended and not generation.unread and not generation.limit:
                self._end(generation, Finished("length", "", self._snapshot(generation)))

    def _plan(self, generation: Generation) -> Plan:
        one, steps = generation, self.rows.steps
        if not one.unread:
            return Plan(one.row, [self._input_of(one)], (), one.uniforms(steps), one.top, one.config.stop_at_end)
        read, end = one.read, len(one.known)
        wanted = (at for at in range(read + 1, min(read + steps, end)) if self._state_is_wanted(one, at))
        stop = next(wanted, min(read + steps, end))
        tokens = [self.start_id if token == self.eos_id else token for token in one.known[read:stop]]
        uniforms = one.uniforms(steps - len(tokens) + 1) if stop == end else ()
        targets = one.known[read + 1 : stop + 1] if one.scored else ()
        return Plan(one.row, tokens, targets, uniforms, one.top, one.config.stop_at_end)

    def _state_is_wanted(self, generation: Generation, read: int) -> bool:
        """Whether the state after this many tokens of the prompt is wanted by the cache or by forks."""
        cached = generation.start is None and self.cache.keeps(generation.known, read)
        return cached or (len(generation.known) - read == 1 and bool(generation.forks))

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
        self._outbox.append((generation, output))
        self._outbox += [(fork, output) for fork in generation.forks]  # which have failed with it
        self._drop([generation])

    def _drop(self, generations: list[Generation]) -> None:
        for generation in generations:
            generation.ended = True
            self.running.remove(generation)
            self.rows.remove(generation.row)

    def _fail_all(self, problem: Exception) -> None:
        with self._changed:
            waiting = [generation for texts in self._waiting.values() for generation in texts]
            self._waiting.clear()
        for generation in [*self.running]:
            self._end(generation, Failed(problem))
        self._outbox += [(one, Failed(problem)) for generation in waiting for one in (generation, *generation.forks)]

    def _flush(self) -> None:
        if self._outbox:
            outbox, self._outbox = self._outbox, []
            self.deliver(outbox)
