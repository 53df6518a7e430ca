"""The rows of a running batch: each has a state of its own, and enters and leaves at any step.

A row gives the same tokens and log-probabilities in any company, bit for bit on a CPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
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


class Choice(NamedTuple):
    token: int
    log_prob: float  # under the model itself
    top: list[tuple[int, float]]  # most likely tokens, in descending order


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
