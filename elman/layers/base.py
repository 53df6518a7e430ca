"""The one idea: a sequence layer is a causal map that carries its past as an explicit value, the state."""

from abc import ABC, abstractmethod
from typing import ClassVar, NoReturn

import torch
from torch import Tensor, nn

from elman import config as settings
from elman.errors import ConfigError
from elman.registry import Pace, Registry, Traits
from elman.shapes import Lengths, Sequence, State, Step


class SequenceLayer(nn.Module, ABC):
    """Two forms that always agree: `forward` takes a whole sequence, `step` one token at constant cost.

    Built as `Layer(config, input_size)`; `output_size` says how wide its output is.
    """

    name: ClassVar[str]
    traits: ClassVar[Traits | None] = None
    """Core idea, limitation and costs; every layer of this package tells them."""
    causal: bool = True
    """Whether an output depends on its past alone. The laws of causal layers skip those that say no."""
    wrapped: ClassVar[bool] = True
    """Whether a stack puts its norm, dropout and shortcut around it."""
    no_decay: ClassVar[tuple[str, ...]] = ()
    """Matrices among its own parameters that weight decay would spoil: rates, not products."""
    pace: ClassVar[Pace | None] = None
    """Where a recipe leaves the learning rate open; a layer without one bears what is usual."""
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
        """The whole sequence, fast. With `lengths`, each row's final state is the one after its last real position."""

    @abstractmethod
    def step(self, x: Step, state: State) -> tuple[Step, State]:
        """One token. Never changes the state it was given."""

    def zeros(self, *shape: int) -> Tensor:
        """One part of an initial state, in float32 at least: bfloat16 would lose small updates to a large state."""
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
