"""The one idea: a sequence layer is a causal map that carries its past as an explicit value, the state."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from elman import config as settings
from elman.registry import Registry
from elman.shapes import Lengths, Sequence, State, Step


class SequenceLayer(nn.Module, ABC):
    """Two forms that always agree: `forward` takes a whole sequence, `step` one token at constant cost.

    Built as `Layer(config, input_size)`; `output_size` says how wide its output is.
    """

    name: ClassVar[str]
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


LAYERS: Registry[SequenceLayer] = Registry("layer")
