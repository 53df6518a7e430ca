"""The simple recurrent network (Elman, 1990)."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS, Cell
from elman.cells.products import PastProduct, start
from elman.ops.taps import tap
from elman.recurrence.vendor import VendorCall
from elman.registry import Traits
from elman.shapes import Step


@CELLS.register("rnn")
class RNN(Cell):
    """Simple recurrent network (Elman, 1990)."""

    traits: ClassVar = Traits(
        idea="h' = tanh(W x + U h): the past enters like a second input",
        limitation="the same matrix multiplies the past at each step: vanishing or exploding gradients",
        training="3·stepping; one step after another",
        stepping="width·(input + width)",
        state="width",
    )
    sites: ClassVar = {"hidden": "the state, and the output (h)"}

    class Config(Cell.Config):
        nonlinearity: Literal["tanh", "relu"] = "tanh"
        """Activation function."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        self.nonlinearity = config.nonlinearity
        self.from_input = nn.Linear(input_size, self.hidden_size, bias=config.bias)
        self.from_past = PastProduct(self.hidden_size, parts=1)
        start(self, self.hidden_size, config.orthogonal)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Step, Tensor]:
        activation = torch.tanh if self.nonlinearity == "tanh" else torch.relu
        hidden = tap("hidden", activation(drive + self.from_past(state)).to(state.dtype))
        return hidden, hidden

    def vendor(self) -> VendorCall:
        return VendorCall.of(f"rnn_{self.nonlinearity}", self.from_input, self.from_past.weight_in_use)
