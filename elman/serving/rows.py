"""The rows of a running batch: each has a state of its own, and enters and leaves at any step.

A row gives the same tokens and log-probabilities in any company, bit for bit on a CPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.evaluation.inference_mode import device_of, inference_mode
from elman.generation.sampling import NO_TOKEN, GenerationConfig, checked_logsumexp, tokens_at_uniforms
from elman.ops.state import map_state
from elman.ops.taps import stepping
from elman.shapes import State


class Feed(NamedTuple):
    """The next input of a row. Without `logits` the step may skip the output layer, as within a prompt."""

    row: int
    token: int
    logits: bool = True


class Draw(NamedTuple):
    """How the next token of a row is sampled, or, with a `token`, which one is scored."""

    row: int
    config: GenerationConfig
    uniform: float = 0.0
    recent: Sequence[int] = ()  # the last tokens of the text, for the repetition penalty
    generated: Sequence[int] = ()  # the tokens after the prompt, for presence and frequency penalties
    excluded: int | None = None  # a token that is never drawn
    top: int = 0  # the number of most likely tokens that are reported
    token: int | None = None


class Choice(NamedTuple):
    token: int
    log_prob: float  # under the model itself
    top: list[tuple[int, float]]  # most likely tokens, in descending order


class Rows(ABC):
    """States and logits of rows, under numbers that `add` gives."""

    name: str
    """What computes the steps, for logs and `/v1/models`."""

    @abstractmethod
    def add(self, state: State) -> int:
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
    def choose(self, draws: Sequence[Draw]) -> list[Choice | Exception]:
        """Samples or scores by the logits after the last step of each row; an exception for invalid logits."""


class TorchRows(Rows):
    """The reference: each row on its own, in torch. Used where no compiled step runs."""

    name = "torch, one row after another"

    def __init__(self, model: Any):
        self.model = model
        self.states: dict[int, State] = {}
        self.logits: dict[int, Tensor] = {}
        self._next = 0

    def add(self, state: State) -> int:
        self._next += 1
        self.states[self._next] = map_state(torch.clone, state)
        return self._next

    def remove(self, row: int) -> None:
        del self.states[row]
        self.logits.pop(row, None)

    def state(self, row: int) -> State:
        return map_state(torch.clone, self.states[row])

    def step(self, feeds: Sequence[Feed]) -> None:
        with inference_mode(self.model), stepping():
            for feed in feeds:
                token = torch.tensor([feed.token], device=device_of(self.model))
                self.logits[feed.row], self.states[feed.row] = self.model.step(token, self.states[feed.row])

    def choose(self, draws: Sequence[Draw]) -> list[Choice | Exception]:
        return [choose(self.logits[draw.row].cpu(), draw) for draw in draws]


def choose(logits: Tensor, draw: Draw) -> Choice | Exception:
    try:
        (total,) = checked_logsumexp(logits)
    except Exception as problem:
        return problem
    token = draw.token
    if token is None:
        config = draw.config
        window = [*draw.recent][-config.repetition_window :]
        recent = torch.tensor([window or [NO_TOKEN]])
        uniform = torch.tensor([draw.uniform], dtype=torch.float64)
        token = int(tokens_at_uniforms(logits, config, uniform, recent, draw.excluded))
    values = logits[0].double() - total
    top = values.topk(min(draw.top, len(values))) if draw.top else None
    likeliest = [] if top is None else [*zip(top.indices.tolist(), top.values.tolist(), strict=True)]
    return Choice(token, float(values[token]), likeliest)
