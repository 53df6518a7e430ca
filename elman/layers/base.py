"""The sequence layer, a causal map from sequence to sequence with an explicit state, and its common forms."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, NoReturn

import torch
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.errors import ConfigError
from elman.ops import scan
from elman.ops.forms import Forms
from elman.ops.taps import stepping
from elman.recurrence import reference
from elman.registry import Registry, SuggestedRate, Traits
from elman.shapes import Lengths, Sequence, State, Step


class SequenceLayer(nn.Module, ABC):
    """Two equivalent forms: `forward` takes a whole sequence, `step` one token at constant cost.

    Constructed as `Layer(config, input_size)`; `output_size` is the width of its output.
    """

    name: ClassVar[str]
    traits: ClassVar[Traits | None] = None
    """Core idea, limitation and costs; every layer of this package has them."""
    causal: bool = True
    """Whether outputs depend on the past only. The laws of causal layers skip the others."""
    reads_tables: bool = False
    """Whether `forward` also takes a sequence as rows of a table (`Lookup`)."""
    wrapped: ClassVar[bool] = True
    """Whether a stack adds norm, dropout and residual connection around it."""
    no_decay: ClassVar[tuple[str, ...]] = ()
    """Names of own matrix parameters exempt from weight decay: rates, not weights of products."""
    suggested_rate: ClassVar[SuggestedRate | None] = None
    """Suggested learning rate if the recipe sets none; None: the default."""
    input_size: int
    output_size: int

    class Config(settings.Config):
        pass

    @abstractmethod
    def initial_state(self, batch: int) -> State:
        """The state before the first token."""

    @abstractmethod
    def forward(
        self, x: Sequence, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, State]:
        """The whole sequence in parallel form. With `lengths`, the final state of each row is that after its last real
        position."""

    @abstractmethod
    def step(self, x: Step, state: State) -> tuple[Step, State]:
        """One token. Never modifies its input state."""

    def zeros(self, *shape: int) -> Tensor:
        """A part of an initial state, in at least float32: bfloat16 would lose small updates of a large state."""
        weight = next(self.parameters())
        return weight.new_zeros(shape, dtype=torch.promote_types(weight.dtype, torch.float32))


class ParallelLayer(SequenceLayer):
    """A layer that computes all positions at once; a step is a sequence of one position. Subclasses define `run`."""

    def __init__(self, config: Any, input_size: int):
        super().__init__()
        self.config = config
        self.input_size = input_size
        self.output_size = getattr(config, "hidden_size", 0) or input_size

    @abstractmethod
    def run(self, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
        """Outputs and final state of at least one position."""

    def forward(
        self, x: Sequence, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, State]:
        state = self.initial_state(len(x)) if state is None else state
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.output_size), state
        return self.run(x, state, lengths)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        with stepping(False):
            outputs, state = self.forward(x.unsqueeze(1), state)
        return outputs.squeeze(1), state


class ScanLayer(ParallelLayer):
    """A layer with a linear recurrence: a parallel form, and a step-by-step form for recording.

    Subclasses define `parallel` for whole sequences and `advance` for one step; taps are in `advance`.
    """

    sites: ClassVar[dict[str, str]] = {}
    """Each tapped quantity with its meaning and symbol."""
    forms: ClassVar[Forms] = scan.FORMS
    """Implementations of the operation in `parallel`."""

    class Config(settings.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the output; 0: the model's hidden_size."""

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
        with stepping():
            return self.advance(x, state)

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """The selected implementation, and why; padding does not matter."""
        return self.forms.explain(next(self.parameters()).new_empty(batch, time, self.output_size))


class ReadyStep(NamedTuple):
    """A step whose inputs need no projection, for the reference loop."""

    step: Callable[[Tensor, State], tuple[Tensor, State]]

    def drive(self, x: Tensor) -> Tensor:
        return x


class TwoWayLayer(SequenceLayer):
    """A bidirectional layer: no step form, and splitting a text changes its outputs.

    Its state is the final state of each direction, as a summary; a later chunk cannot continue from it.
    """

    causal = False

    def step(self, x: Step, state: State) -> NoReturn:
        raise two_way(self.name)


LAYERS: Registry[SequenceLayer] = Registry("layer")


def two_way(name: str) -> ConfigError:
    """The error for a bidirectional layer in a left-to-right model."""
    causal = ", ".join(name for name in LAYERS if LAYERS[name].causal)
    return ConfigError(
        f"layer {name!r} is bidirectional, so a left-to-right model cannot use it and it has no step form; use it in a "
        f"model that sees the whole text, such as masked, or use one of {causal}"
    )


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision to float32; float64 stays."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
