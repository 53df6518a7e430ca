"""Base of layers with a linear recurrence: a parallel form, and a step-by-step form for recording."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from pydantic import Field
from torch import Tensor

from elman import config as settings
from elman.layers.base import ParallelLayer
from elman.ops import scan, taps
from elman.ops.forms import Forms
from elman.recurrence import reference
from elman.shapes import Lengths, Sequence, State, Step


class ScanLayer(ParallelLayer):
    """Subclasses define `parallel` for whole sequences and `advance` for one step; taps are in `advance`."""

    sites: ClassVar[dict[str, str]] = {}
    """Each tapped quantity with its meaning and symbol."""
    forms: ClassVar[Forms] = scan.FORMS
    """Implementations of the operation in `parallel`."""

    class Config(settings.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the output; 0: the model's hidden_size."""

    def __init__(self, config: Any, input_size: int):
        super().__init__()
        self.config = config
        self.input_size = input_size
        self.output_size = self.hidden_size = config.hidden_size or input_size

    @abstractmethod
    def parallel(self, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
        """At least one position, in parallel."""

    @abstractmethod
    def advance(self, x: Step, state: State) -> tuple[Step, State]:
        """One step."""

    def run(self, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
        form = self.walk if self.forms.choose(x).form == "reference" else self.parallel
        return form(x, state, lengths)

    def walk(self, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
        """At least one position, step by step; subclasses compute what steps share only once."""
        return reference.run(ReadyStep(self.advance), x, state, lengths)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        with taps.stepping():
            return self.advance(x, state)

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """The selected implementation, and why; padding does not matter."""
        return self.forms.explain(next(self.parameters()).new_empty(batch, time, self.hidden_size))


class ReadyStep(NamedTuple):
    """A step whose inputs need no projection, for the reference loop."""

    step: Callable[[Tensor, State], tuple[Tensor, State]]

    def drive(self, x: Tensor) -> Tensor:
        return x
