"""Causal convolution over time: plain, dilated (a stack of them is a TCN, Bai et al., 2018), gated (Dauphin et al.)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.layers.base import LAYERS
from elman.layers.past_inputs import PastInputs
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Sequence

ACTIVATIONS = {"linear": lambda x: x, "relu": torch.relu, "gelu": nn.functional.gelu, "tanh": torch.tanh}


@LAYERS.register("convolution")
class Convolution(PastInputs):
    """Causal convolution over time, dilated and gated if asked (TCN, gated convolutional network).

    A stack with dilation 1, 2, 4, ... and `residual: true` sees twice as far with each layer (Bai et al., 2018).
    """

    traits: ClassVar = Traits(
        idea="an output is the same function of its last few inputs everywhere, so all times are computed at once",
        limitation="what lies further back than kernel_size and dilation reach is not seen at all",
        training="3·stepping; all positions at once",
        stepping="kernel_size·input·width; twice if gated",
        state="(kernel_size − 1)·dilation·input",
    )
    sites: ClassVar = {
        "gate": "share of the value that is let through; if gated",
        "hidden": "the output",
    }

    class Config(settings.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the output; 0 takes the model's hidden_size."""
        kernel_size: int = Field(3, ge=1)
        """How many inputs an output sees, its own among them."""
        dilation: int = Field(1, ge=1)
        """How far apart these inputs are."""
        gated: bool = False
        """Multiply by a gate of the same inputs (GLU; Dauphin et al., 2017)."""
        activation: Literal["linear", "relu", "gelu", "tanh"] | None = None
        """What bends the convolved value; null is relu, or linear where there is a gate."""
        bias: bool = True
        """Whether a bias vector is added."""

    def __init__(self, config: Config, input_size: int):
        super().__init__()
        self.input_size, self.output_size = input_size, config.hidden_size or input_size
        self.config = config
        self.reach = (config.kernel_size - 1) * config.dilation
        self.gated = config.gated
        self.activation = ACTIVATIONS[config.activation or ("linear" if config.gated else "relu")]
        width = self.output_size * (2 if config.gated else 1)
        self.convolve = nn.Conv1d(input_size, width, config.kernel_size, dilation=config.dilation, bias=config.bias)

    def read(self, inputs: Tensor) -> Sequence:
        value: Tensor = self.convolve(inputs.transpose(1, 2)).transpose(1, 2)
        if not self.gated:
            return tap("hidden", self.activation(value))
        value, gate = value.chunk(2, dim=-1)
        gate = tap("gate", torch.sigmoid(gate))
        return tap("hidden", self.activation(value) * gate)
