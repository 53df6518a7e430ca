"""Layers whose state is their last few inputs: convolution over time, and a feed-forward n-gram layer."""

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.layers.base import LAYERS, ParallelLayer
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Lengths, Sequence

ACTIVATIONS = {"linear": lambda x: x, "relu": torch.relu, "gelu": nn.functional.gelu, "tanh": torch.tanh}


class PastInputs(ParallelLayer):
    """`read` computes an output from its own input and the `reach` inputs before it, zero-padded at the start."""

    reach: int

    @abstractmethod
    def read(self, inputs: Tensor) -> Sequence:
        """From (batch, reach + time, input_size) to (batch, time, output_size), time ≥ 1."""

    def initial_state(self, batch: int) -> Tensor:
        return self.zeros(batch, self.reach, self.input_size)

    def run(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        inputs = torch.cat([state, x.to(state.dtype)], dim=1)
        outputs = self.read(inputs.to(next(self.parameters()).dtype))
        if lengths is None:
            return outputs, inputs[:, x.shape[1] :].clone()  # a view would keep the whole sequence in memory
        rows = torch.arange(len(x), device=x.device).unsqueeze(1)
        last = lengths.to(x.device).unsqueeze(1) + torch.arange(self.reach, device=x.device)
        return outputs, inputs[rows, last]


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
        super().__init__(config, input_size)
        self.reach = (config.kernel_size - 1) * config.dilation
        self.activation = ACTIVATIONS[config.activation or ("linear" if config.gated else "relu")]
        width = self.output_size * (2 if config.gated else 1)
        self.convolve = nn.Conv1d(input_size, width, config.kernel_size, dilation=config.dilation, bias=config.bias)

    def read(self, inputs: Tensor) -> Sequence:
        value: Tensor = self.convolve(inputs.transpose(1, 2)).transpose(1, 2)
        if not self.config.gated:
            return tap("hidden", self.activation(value))
        value, gate = value.chunk(2, dim=-1)
        gate = tap("gate", torch.sigmoid(gate))
        return tap("hidden", self.activation(value) * gate)


@LAYERS.register("window")
class Window(PastInputs):
    """Feed-forward network over the last few inputs (Bengio et al., 2003): y = tanh(H w + d), where w is the window."""

    traits: ClassVar = Traits(
        idea="a neural n-gram model: similar contexts give similar outputs, also unseen ones",
        limitation="sees nothing before the window, and each position in it has its own weights",
        training="3·stepping; all positions at once",
        stepping="context·input·width; twice if direct",
        state="(context − 1)·input",
    )
    sites: ClassVar = {
        "hidden": "output of the hidden layer",
        "direct": "output of the direct connections; if direct",
    }

    class Config(settings.Config):
        hidden_size: int = Field(0, ge=0)
        """Width of the hidden layer and of the output; 0: the model's hidden_size."""
        context: int = Field(4, ge=1)
        """Number of inputs in the window, including the current one."""
        direct: bool = False
        """Direct connections: add a linear map of the window to the output."""
        bias: bool = True
        """Bias of the hidden layer."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        self.context, self.reach = config.context, config.context - 1
        width = config.context * input_size
        self.hidden = nn.Linear(width, self.output_size, bias=config.bias)
        self.direct = nn.Linear(width, self.output_size, bias=False) if config.direct else None

    def read(self, inputs: Tensor) -> Sequence:
        window = inputs.unfold(1, self.context, 1).transpose(2, 3).flatten(2)  # oldest first
        hidden = tap("hidden", torch.tanh(self.hidden(window)))
        return hidden if self.direct is None else hidden + tap("direct", self.direct(window))
