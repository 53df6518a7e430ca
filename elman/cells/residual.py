"""The ungated residual update: each step adds something to the state and takes nothing away."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS, Cell
from elman.cells.products import PastProduct, start
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Step

CALM = 0.01  # of the usual size: what the recurrent weights begin with


@CELLS.register("residual")
class Residual(Cell):
    """Ungated residual update: the new state is the old one plus a change."""

    traits: ClassVar = Traits(
        idea="h' = h + tanh(W x + U h): the past passes as it is, so gradients reach far back",
        limitation="nothing is forgotten: the state may grow by one each step, beyond what training has seen",
        training="3·stepping; one step after another",
        stepping="width·(input + width)",
        state="width",
    )
    sites: ClassVar = {
        "change": "what is added to the state, between -1 and 1",
        "hidden": "the state, and the output (h)",
    }

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        self.from_input = nn.Linear(input_size, self.hidden_size, bias=config.bias)
        self.from_past = PastProduct(self.hidden_size, parts=1)
        start(self, self.hidden_size, config.orthogonal)
        if not config.orthogonal:  # else the state drives its own growth, which drowns every input
            nn.init.uniform_(self.from_past.weight, -CALM * self.hidden_size**-0.5, CALM * self.hidden_size**-0.5)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Step, Tensor]:
        change = tap("change", torch.tanh(drive + self.from_past(state)))
        hidden = tap("hidden", state + change)
        return hidden, hidden
