"""Layers that work on each position by itself: they have no past, so their state has no width."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.layers.base import LAYERS, ParallelLayer
from elman.ops import taps
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, Step

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
    "swish": F.silu,
}


class Pointwise(ParallelLayer):
    """A function of one position; subclasses give `transform`, for any leading axes."""

    @abstractmethod
    def transform(self, x: Tensor) -> Tensor: ...

    def initial_state(self, batch: int) -> Tensor:
        """A tensor (batch, 0): no elements, but it has the batch size."""
        return next(self.parameters()).new_zeros(batch, 0)

    def run(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        return self.transform(x), state

    def step(self, x: Step, state: Tensor) -> tuple[Step, Tensor]:
        with taps.stepping():
            return self.transform(x), state


class Network(Pointwise):
    """A network with one hidden layer, whose units `inner` computes from `products` products of the input."""

    def __init__(self, config: Any, input_size: int, inner_size: int, products: int):
        super().__init__(config, input_size)
        self.inner_size = inner_size
        self.from_input = nn.Linear(input_size, products * inner_size, bias=config.bias)
        self.to_output = nn.Linear(inner_size, input_size, bias=config.bias)

    @abstractmethod
    def inner(self, x: Tensor) -> Tensor: ...

    def transform(self, x: Tensor) -> Tensor:
        return self.to_output(tap("inner", self.inner(x)))


@LAYERS.register("feedforward")
class FeedForward(Network):
    """Two matrices with a nonlinearity between, at each position alone."""

    traits: ClassVar = Traits(
        idea="inner units that each answer to a pattern in the input and add what they know",
        limitation="it sees no other position",
        training="3·stepping; all positions at once",
        stepping="2·width·inner_size",
        state="0",
    )
    sites: ClassVar = {"inner": "the inner units after the nonlinearity"}

    class Config(settings.Config):
        activation: Literal["relu", "gelu", "gelu-tanh", "tanh", "swish"] = "gelu"
        """The nonlinearity; gelu-tanh is the approximation that GPT-2 was trained with."""
        inner_size: int = Field(0, ge=0)
        """Inner units; 0 takes expansion × width."""
        expansion: float = Field(4.0, gt=0)
        """Inner units for each unit of the width."""
        bias: bool = True
        """Whether the matrices have bias vectors."""

    def __init__(self, config: Config, input_size: int):
        size = config.inner_size or max(1, round(config.expansion * input_size))
        super().__init__(config, input_size, size, 1)
        self.activation = config.activation

    def inner(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.from_input(x))


@LAYERS.register("swiglu")
class SwiGLU(Network):
    """Feed-forward whose inner units are gated by a second product of the input (Shazeer, 2020).

    With the usual inner size it costs as much as plain feed-forward with expansion 4.
    """

    traits: ClassVar = Traits(
        idea="inner units are products of two views of the input: one proposes, one lets through",
        limitation="it sees no other position",
        training="3·stepping; all positions at once",
        stepping="3·width·inner_size",
        state="0",
    )
    sites: ClassVar = {
        "gate": "how much of each inner unit is let through: swish of the first product",
        "inner": "the inner units after the gate",
    }

    class Config(settings.Config):
        inner_size: int = Field(0, ge=0)
        """Inner units; 0 takes 8/3 of the width, up to the next multiple of 8."""
        bias: bool = False
        """Whether the matrices have bias vectors."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size, config.inner_size or -(-input_size // 3) * 8, 2)

    def inner(self, x: Tensor) -> Tensor:
        gate, value = self.from_input(x).chunk(2, dim=-1)
        return F.silu(gate) * value

    def transform(self, x: Tensor) -> Tensor:
        gate, value = self.from_input(x).chunk(2, dim=-1)
        return self.to_output(tap("inner", tap("gate", F.silu(gate)) * value))
