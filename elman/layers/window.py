"""Feed-forward n-gram layer (Bengio et al., 2003): a hidden layer over the last few inputs."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from elman import config as settings
from elman.layers.base import LAYERS
from elman.layers.past_inputs import PastInputs
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Sequence


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
        super().__init__()
        self.input_size, self.output_size = input_size, config.hidden_size or input_size
        self.context, self.reach = config.context, config.context - 1
        width = config.context * input_size
        self.hidden = nn.Linear(width, self.output_size, bias=config.bias)
        self.direct = nn.Linear(width, self.output_size, bias=False) if config.direct else None

    def read(self, inputs: Tensor) -> Sequence:
        window = inputs.unfold(1, self.context, 1).transpose(2, 3).flatten(2)  # oldest first
        hidden = tap("hidden", torch.tanh(self.hidden(window)))
        return hidden if self.direct is None else hidden + tap("direct", self.direct(window))
