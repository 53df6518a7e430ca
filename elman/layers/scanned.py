"""Base of layers with a linear recurrence: a parallel form, and a step-by-step form for recording."""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from elman import config as settings
from elman.layers.base import SequenceLayer
from elman.ops import scan, taps
from elman.ops.forms import Forms
from elman.recurrence import reference
from elman.shapes import Lengths, Sequence, State, Step


class ScanLayer(SequenceLayer):
    """Subclasses define `parallel` for whole sequences and `advance` for one step; taps are in `advance`."""

    sites: ClassVar[dict[str, str]] = {}
    """Each tapped quantity with its meaning and symbol."""
    forms: ClassVar[Forms] = scan.FORMS
    """Implementations of the operation in `parallel`."""
    hidden_size: int

    class Config(settings.Config):
        pass

    @abstractmethod
    def parallel(self, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
        """At least one position, in parallel."""

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
        """At least one position, step by step; subclasses compute what steps share only once."""
        return reference.run(self, x, state, lengths)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        with taps.stepping():
            return self.advance(x, state)

    def drive(self, x: Sequence) -> Sequence:
        """The reference loop passes inputs to `advance` unchanged."""
        return x

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """The selected implementation, and why; padding does not matter."""
        return self.forms.explain(next(self.parameters()).new_empty(batch, time, self.hidden_size))


class LinearState:
    """The reference loop over a linear recurrence; its input stacks decay and increment."""

    def __init__(self, hidden_size: int):
        self.hidden_size = hidden_size

    def drive(self, both: Tensor) -> Tensor:
        return both

    def step(self, both: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        keep, new = both.unbind(1)
        state = taps.tap("state", keep * state + new)
        return state, state
