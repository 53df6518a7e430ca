"""The rows of a running batch: each has a state of its own, and enters and leaves at any step.

A row gives the same tokens and log-probabilities in any company, bit for bit on a CPU.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.errors import ElmanError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.sampling import (
    NO_TOKEN,
    GenerationConfig,
    checked_logsumexp,
    count_tokens,
    new_counts,
    tokens_at_uniforms,
)
from elman.ops.state import map_state
from elman.ops.taps import stepping
from elman.shapes import State


class Feed(NamedTuple):
    """The next input of a row. Without `logits` the step may skip the output layer, as within a prompt."""

    row: int
    token: int
    logits: bool = True


class Rule(NamedTuple):
    """How the tokens of a row are drawn."""

    config: GenerationConfig = GenerationConfig()
    excluded: int | None = None  # a token that is never drawn
    known: Sequence[int] = ()  # the text before the first drawn token, for the repetition penalty
    end: int = NO_TOKEN  # the token that ends a text, unless the settings say to go on
    start: int = NO_TOKEN  # the token that is read in its place


class Draw(NamedTuple):
    """Which row draws its next token, or, with a `token`, which one is scored."""

    row: int
    uniform: float = 0.0  # a random number in [0, 1)
    top: int = 0  # the number of most likely tokens that are reported
    token: int | None = None


class Plan(NamedTuple):
    """Several steps of a row that need no decision in between: tokens that are read, then tokens that are drawn, each
    of which is read before the next is drawn."""

    row: int
    tokens: Sequence[int]  # at least one
    targets: Sequence[int] = ()  # a token to be scored after each of `tokens`, or after the first ones
    uniforms: Sequence[float] | np.ndarray = ()  # a random number in [0, 1) for each token to be drawn
    top: int = 0
    ends: bool = True  # nothing is drawn after the end of a text; otherwise the start of another is read in its place


class Marks(NamedTuple):
    eos_id: int  # the end of a text
    start_id: int  # the token that is read in its place


class Choice(NamedTuple):
    token: int
    log_prob: float  # under the model itself
    top: list[tuple[int, float]]  # most likely tokens, in descending order


class Progress(NamedTuple):
    """How far a row came in its turn."""

    read: int  # inputs
    tokens: list[int]  # that were drawn or scored
    log_probs: list[float]
    tops: list[list[tuple[int, float]]]
    problem: ElmanError | None = None  # invalid logits after these


class Rows(ABC):
    """States and logits of rows, under numbers that `add` gives."""

    name: str
    """What computes the steps, for logs and `/v1/models`."""
    steps: int = 1
    """The most steps of a plan: more than one where a return to the host is expensive."""

    @abstractmethod
    def add(self, state: State, rule: Rule) -> int:
        """A new row with a copy of this state (of batch 1)."""

    @abstractmethod
    def remove(self, row: int) -> None: ...

    @abstractmethod
    def state(self, row: int) -> State:
        """A copy of a row's state."""

    @abstractmethod
    def step(self, feeds: Sequence[Feed]) -> None:
        """One step of some rows, each at most once."""

    @abstractmethod
    def choose(self, draws: Sequence[Draw]) -> list[Choice | ElmanError]:
        """Samples or scores by the logits after the last step of each row; an exception for invalid logits."""

    def extend(self, plans: Sequence[Plan], eos_id: int, start_id: int) -> list[list[Choice | ElmanError]]:
        """Runs a plan of each row: what was scored, then what was drawn, up to the end of the text or an exception."""
        return [self._extend(plan, eos_id, start_id) for plan in plans]

    def _extend(self, plan: Plan, eos_id: int, start_id: int) -> list[Choice | ElmanError]:
        """The definition: one step after another."""
        found: list[Choice | ElmanError] = []
        for number, token in enumerate(plan.tokens):
            scored = number < len(plan.targets)
            last = number + 1 == len(plan.tokens)
            self.step([Feed(plan.row, token, scored or (last and len(plan.uniforms) > 0))])
            found += self.choose([Draw(plan.row, top=plan.top, token=plan.targets[number])]) if scored else []
        for number, uniform in enumerate(plan.uniforms):
            if number:
                self.step([Feed(plan.row, start_id if token == eos_id else token)])
            (choice,) = self.choose([Draw(plan.row, float(uniform), plan.top)])
            found.append(choice)
            if isinstance(choice, ElmanError) or (plan.ends and choice.token == eos_id):
                break
            token = choice.token
        return found

    # What the scheduler asks for

    def begin(self, plan: Plan) -> None:
        """Gives a row a plan, which `advance` runs."""
        self._works[plan.row] = Work(plan)

    def advance(self, marks: Marks, seconds: float, steps: int, beside: int) -> list[int]:
        """Runs the plans of all rows that have one: steps of all of them, as many as fit into the time, and one at
        least. Before each, rows with more than one token to read take up to `beside` steps by themselves. Returns the
        rows whose plans are done, or where it was asked for fewer tokens than planned, have drawn some.

        This one takes a step, or runs what `extend` runs at once.
        """
        until, going = time.monotonic() + seconds, [work for work in self._works.values() if work.unread]
        if self.steps > 1 and going:
            plans = [work.part(self.steps) for work in going]
            for work, part, choices in zip(going, plans, self.extend(plans, *marks), strict=True):
                work.read += len(part.tokens)
                for choice in choices:
                    work.note(choice)
        else:
            self._advance_by_one(going, until, beside)
        return [work.plan.row for work in going if not work.unread]

    def progress(self, row: int) -> Progress:
        """What a row has done in its plan since this was asked last."""
        return self._works[row].progress()

    def stop(self, row: int) -> None:
        """Ends the plan of a row."""
        self._works.pop(row, None)

    @cached_property
    def _works(self) -> "dict[int, Work]":
        return {}

    def _advance_by_one(self, going: "Sequence[Work]", until: float, beside: int) -> None:
        for _ in range(beside):
            prompts = [work for work in going if work.unread > 1]
            if not prompts or time.monotonic() >= until:
                break
            self._take(prompts)
        if left := [work for work in going if work.unread]:
            self._take(left)

    def _take(self, works: "Sequence[Work]") -> None:
        """One step of each, and the tokens that are drawn or scored after it."""
        drawing = [work for work in works if work.wants_logits]
        self.step([work.feed() for work in works])
        if drawing:
            for work, choice in zip(drawing, self.choose([work.draw() for work in drawing]), strict=True):
                work.note(choice)


class Work:
    """A plan, and what has been done of it."""

    def __init__(self, plan: Plan):
        self.plan, self.read, self.told = plan, 0, 0
        self.choices: list[Choice] = []
        self.problem: ElmanError | None = None

    @property
    def unread(self) -> int:
        return 0 if self.problem else len(self.plan.tokens) - self.read

    @property
    def wants_logits(self) -> bool:
        return bool(self.plan.targets) or (self.unread == 1 and len(self.plan.uniforms) > 0)

    def feed(self) -> Feed:
        feed = Feed(self.plan.row, self.plan.tokens[self.read], self.wants_logits)
        self.read += 1
        return feed

    def draw(self) -> Draw:
        """After the feed."""
        plan = self.plan
        if plan.targets:
            return Draw(plan.row, top=plan.top, token=plan.targets[self.read - 1])
        return Draw(plan.row, plan.uniforms[0], plan.top)

    def part(self, steps: int) -> Plan:
        """As much of it as so many steps can do."""
        plan = self.plan
        tokens = plan.tokens[self.read : self.read + steps]
        reaches_end = self.read + len(tokens) == len(plan.tokens)
        uniforms = plan.uniforms[: steps - len(tokens) + 1] if reaches_end else ()
        return plan._replace(tokens=tokens, targets=plan.targets[self.read :][:steps], uniforms=uniforms)

    def note(self, choice: Choice | ElmanError) -> None:
        if isinstance(choice, ElmanError):
            self.problem = choice
        else:
            self.choices.append(choice)

    def progress(self) -> Progress:
        choices, self.choices = self.choices, []
        read, self.told = self.read - self.told, self.read
        tokens, log_probs, tops = ([choice[field] for choice in choices] for field in range(3))
        return Progress(read, tokens, log_probs, tops, self.problem)


class TorchRow:
    """The state of a row, the logits after its last step, and what its penalties know."""

    logits: Tensor

    def __init__(self, state: State, rule: Rule):
        self.state, self.rule = map_state(torch.clone, state), rule
        self.recent = [NO_TOKEN, *rule.known][-rule.config.repetition_window :]
        self.counts: Tensor | None = None

    def choose(self, draw: Draw) -> Choice:
        logits = self.logits.cpu()
        (total,) = checked_logsumexp(logits)
        values = logits[0].double() - total
        likeliest = []
        if draw.top:  # of equal ones those with the lowest ids, which `topk` does not promise
            ordered, ids = values.sort(descending=True, stable=True)
            likeliest = [*zip(ids[: draw.top].tolist(), ordered[: draw.top].tolist(), strict=True)]
        token = self.draw(logits, draw.uniform) if draw.token is None else draw.token
        return Choice(token, float(values[token]), likeliest)

    def draw(self, logits: Tensor, uniform: float) -> int:
        config = self.rule.config
        self.counts = new_counts(logits, config) if self.counts is None else self.counts
        uniforms = torch.tensor([uniform], dtype=torch.float64)
        recent = torch.tensor([self.recent])
        token = tokens_at_uniforms(logits, config, uniforms, recent, self.rule.excluded, self.counts)
        self.counts = None if self.counts is None else count_tokens(self.counts, token)
        self.recent = [*self.recent, int(token)][-config.repetition_window :]
        return int(token)


class TorchRows(Rows):
    """The reference: each row on its own, in torch. Used where no compiled step runs."""

    name = "torch, one row after another"

    def __init__(self, model: Any):
        self.model = model
        self.rows: dict[int, TorchRow] = {}
        self._next = 0

    def add(self, state: State, rule: Rule) -> int:
        self._next += 1
        self.rows[self._next] = TorchRow(state, rule)
        return self._next

    def remove(self, row: int) -> None:
        del self.rows[row]

    def state(self, row: int) -> State:
        return map_state(torch.clone, self.rows[row].state)

    def step(self, feeds: Sequence[Feed]) -> None:
        with inference_mode(self.model), stepping():
            for feed in feeds:
                row, token = self.rows[feed.row], torch.tensor([feed.token], device=device_of(self.model))
                row.logits, row.state = self.model.step(token, row.state)

    def choose(self, draws: Sequence[Draw]) -> list[Choice | ElmanError]:
        found: list[Choice | ElmanError] = []
        for draw in draws:
            try:
                found.append(self.rows[draw.row].choose(draw))
            except ElmanError as problem:
                found.append(problem)
        return found
