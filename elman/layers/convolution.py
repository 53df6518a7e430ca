"""Causal convolution over time: plain, dilated (TCN; Bai et al., 2018), gated (GLU; Dauphin et al., 2017)."""

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
    """Causal convolution over time, optionally dilated and gated (TCN, gated convolutional network).

    In a stack with dilation 1, 2, 4, ... and `residual: true`, the receptive field doubles with each layer (Bai et al.,
    2018).
    """

    traits: ClassVar = Traits(
        idea="the same function of the last few inputs at every position, so all positions are computed in parallel",
        limitation="sees nothing beyond its receptive field, kernel_size and dilation",
        training="3·stepping; all positions at once",
        stepping="kernel_size·input·width; twice if gated",
        state="(kernel_size − 1)·dilation·input",
    )
    sites: ClassVar = {
        "gate": "gate of the value; if gated",
        "hidden": "the output",
    }

    class Config(settings.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the output; 0: the model's hidden_size."""
        kernel_size: int = Field(3, ge=1)
        """Kernel size: inputs per output, including its own."""
        dilation: int = Field(1, ge=1)
        """Distance between these inputs."""
        gated: bool = False
        """Gated linear unit: multiply by a sigmoid gate of the same inputs (GLU; Dauphin et al., 2017)."""
        activation: Literal["linear", "relu", "gelu", "tanh"] | None = None
        """Activation of the convolved value; null: relu, or linear with a gate."""
        bias: bool = True
        """Add a bias."""

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
