"""What layers that are linear in their state share: all positions at once, or step by step while someone looks."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from elman import config as settings
from elman.layers.base import SequenceLayer
from elman.ops import scan, taps
from elman.ops.forms import Forms
from elman.recurrence import reference
from elman.shapes import Lengths, Sequence, State, Step


class ScanLayer(SequenceLayer):
    """A layer gives `parallel` for whole sequences and `advance` for one step; taps stand in `advance`."""

    sites: ClassVar[dict[str, str]] = {}
    """Each tapped quantity with its meaning and symbol."""
    forms: ClassVar[Forms] = scan.FORMS
    """Of the operation that `parallel` is made of."""
    hidden_size: int

    class Config(settings.Config):
        pass

    @abstractmethod
    def parallel(self, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
        """At least one position, all at once."""

    @abstractmethod
    def advance(self, x: Step, state: State) -> tuple[Step, State]:
        """One step."""

    def forward(
        self, x: Sequence, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, State]:
        state = self.initial_state(len(x)) if state is None else state
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.hidden_size), state
        if self.forms.choose(x).form == "reference":
            return self.walk(x, state, lengths)
        return self.parallel(x, state, lengths)

    def walk(self, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
        """At least one position, one after the other; a layer whose steps share work does that once."""
        return reference.run(self, x, state, lengths)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        with taps.stepping():
            return self.advance(x, state)

    def drive(self, x: Sequence) -> Sequence:
        """Nothing is prepared for the plain loop: `advance` does it all."""
        return x

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """Which form a whole sequence would take, and why; rows of unequal length change nothing."""
        return self.forms.explain(next(self.parameters()).new_empty(batch, time, self.hidden_size))

    def zeros(self, *shape: int) -> Tensor:
        """One part of an initial state, in float32 at least: bfloat16 would lose small updates to a large state."""
        weight = next(self.parameters())
        return torch.zeros(shape, dtype=torch.promote_types(weight.dtype, torch.float32), device=weight.device)


class LinearState:
    """The plain loop over a state that is kept in part and added to: its drive holds the share and what is new."""

    def __init__(self, hidden_size: int):
        self.hidden_size = hidden_size

    def drive(self, both: Tensor) -> Tensor:
        return both

    def step(self, both: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        keep, new = both.unbind(1)
        state = taps.tap("state", keep * state + new)
        return state, state


def wide(x: Tensor) -> Tensor:
    """In float32 at least, as states are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
