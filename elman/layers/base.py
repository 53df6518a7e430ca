"""Sequence layers: causal maps from sequence to sequence with an explicit state."""

from abc import ABC, abstractmethod
from typing import ClassVar, NoReturn

import torch
from torch import Tensor, nn

from elman import config as settings
from elman.errors import ConfigError
from elman.registry import Pace, Registry, Traits
from elman.shapes import Lengths, Sequence, State, Step


class SequenceLayer(nn.Module, ABC):
    """Base class of all layers. `forward` processes a whole sequence, `step` one token; both must agree.

    Constructed as `Layer(config, input_size)`. Shapes are (batch, time, width), and (batch, width) for a step.
    """

    name: ClassVar[str]
    traits: ClassVar[Traits | None] = None
    """Core idea, limitation and cost formulas; required for built-in layers."""
    causal: bool = True
    """Whether outputs depend on past inputs only."""
    wrapped: ClassVar[bool] = True
    """Whether a stack adds norm, dropout and a residual connection around the layer."""
    no_decay: ClassVar[tuple[str, ...]] = ()
    """Own matrices that are excluded from weight decay, such as decay rates."""
    pace: ClassVar[Pace | None] = None
    """Suggested learning rate and warm-up, used where a recipe sets none."""
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
        """Outputs of the whole sequence and the final state.

        With `lengths`, the final state of a row is the one after its last real position.
        """

    @abstractmethod
    def step(self, x: Step, state: State) -> tuple[Step, State]:
        """Output of one token and the next state. Never modifies its input state."""

    def zeros(self, *shape: int) -> Tensor:
        """A zero state tensor in at least float32: bfloat16 would lose small updates to a large state."""
        weight = next(self.parameters())
        kind = torch.promote_types(weight.dtype, torch.float32)
        return torch.zeros(*shape, dtype=kind, device=weight.device)


class TwoWayLayer(SequenceLayer):
    """A layer whose outputs see both sides of their position: it has no step form, and cutting a text changes it.

    Its state is where each direction ended, for whoever needs a summary; it is no past that a next piece could go on
    from.
    """

    causal = False

    def step(self, x: Step, state: State) -> NoReturn:
        raise two_way(self.name)


LAYERS: Registry[SequenceLayer] = Registry("layer")


def two_way(name: str) -> ConfigError:
    """What to raise where a layer that is not `causal` stands in a model that reads from left to right."""
    causal = ", ".join(name for name in LAYERS if LAYERS[name].causal)
    return ConfigError(
        f"layer {name!r} sees both sides of each position, so a model that reads from left to right cannot use it and "
        f"it cannot go step by step; use it in a model that has the whole text, like masked, or take one of {causal}"
    )
