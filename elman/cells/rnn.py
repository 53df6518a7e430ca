"""The simple recurrent network (Elman, 1990), and its residual form."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elman.cells.base import CELLS, Antisymmetric, BlockCell, Cell, PastProduct, start
from elman.ops.taps import tap
from elman.recurrence.vendor import VendorCall
from elman.registry import Traits
from elman.shapes import Step

INIT_SCALE = 0.01  # of the residual cell's recurrent weights, relative to the usual initialization


@CELLS.register("rnn")
class RNN(BlockCell):
    """Simple recurrent network (Elman, 1990)."""

    traits: ClassVar = Traits(
        idea="h' = tanh(W x + U h): the past enters like a second input",
        limitation="the same matrix multiplies the past at each step: vanishing or exploding gradients",
        training="3·stepping; one step after another",
        stepping="width·(input + width)",
        state="width",
    )
    sites: ClassVar = {"hidden": "the state, and the output (h)"}
    blocks = 1

    class Config(Cell.Config):
        nonlinearity: Literal["tanh", "relu"] = "tanh"
        """Activation function."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        self.nonlinearity = config.nonlinearity

    def step(self, drive: Tensor, state: Tensor) -> tuple[Step, Tensor]:
        activation = torch.tanh if self.nonlinearity == "tanh" else torch.relu
        hidden = tap("hidden", activation(drive + self.from_past(state)).to(state.dtype))
        return hidden, hidden

    def vendor(self) -> VendorCall:
        return VendorCall.of(f"rnn_{self.nonlinearity}", self.from_input, self.from_past.weight_in_use)


@CELLS.register("residual")
class Residual(Cell):
    """Ungated residual update: the new state is the old one plus a change."""

    traits: ClassVar = Traits(
        idea="h' = h + tanh(W x + U h): the past passes unchanged, so gradients reach far back",
        limitation="cannot forget: the state can grow by one at each step without bound",
        training="3·stepping; one step after another",
        stepping="width·(input + width)",
        state="width",
    )
    sites: ClassVar = {
        "change": "increment of the state, in [-1, 1]",
        "hidden": "the state, and the output (h)",
    }

    class Config(Cell.Config):
        form: Literal["free", "antisymmetric"] = "free"
        """Recurrent matrix: unconstrained (free), or M - Mᵀ - damping·I, which cannot make the state grow
        (antisymmetric; Chang et al., 2019). Long texts need the latter."""
        damping: float = Field(1.0, ge=0)
        """Damping of the antisymmetric form; 0: none."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        size = self.hidden_size
        self.from_input = nn.Linear(input_size, size, bias=config.bias)
        self.from_past = PastProduct(size, parts=1) if config.form == "free" else Antisymmetric(size, config.damping)
        start(self, size, config.orthogonal)
        if not config.orthogonal:  # else the state grows or rotates too fast
            nn.init.uniform_(self.from_past.weight, -INIT_SCALE * size**-0.5, INIT_SCALE * size**-0.5)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Step, Tensor]:
        change = tap("change", torch.tanh(drive + self.from_past(state)))
        hidden = tap("hidden", state + change)
        return hidden, hidden
