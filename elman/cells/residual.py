"""The ungated residual update: each step adds something to the state and takes nothing away."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from elman.cells.base import CELLS, Cell
from elman.cells.products import Antisymmetric, PastProduct, start
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Step

CALM = 0.01  # of the usual size: what recurrent weights begin with


@CELLS.register("residual")
class Residual(Cell):
    """Ungated residual update: the new state is the old one plus a change."""

    traits: ClassVar = Traits(
        idea="h' = h + tanh(W x + U h): the past passes as it is, so gradients reach far back",
        limitation="nothing makes it forget: where U feeds a direction, the state grows by one each step, without end",
        training="3·stepping; one step after another",
        stepping="width·(input + width)",
        state="width",
    )
    sites: ClassVar = {
        "change": "what is added to the state, between -1 and 1",
        "hidden": "the state, and the output (h)",
    }

    class Config(Cell.Config):
        form: Literal["free", "antisymmetric"] = "free"
        """What the recurrent matrix may become: anything, or M - Mᵀ - damping·I, which cannot feed the growth of the
        state (Chang et al., 2019). Over long texts only the latter learns."""
        damping: float = Field(1.0, ge=0)
        """How strongly the antisymmetric form takes the state back; 0 forgets nothing."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        size = self.hidden_size
        self.from_input = nn.Linear(input_size, size, bias=config.bias)
        self.from_past = PastProduct(size, parts=1) if config.form == "free" else Antisymmetric(size, config.damping)
        start(self, size, config.orthogonal)
        if not config.orthogonal:  # else the state drives its own growth, or turns so fast that it leaves its circle
            nn.init.uniform_(self.from_past.weight, -CALM * size**-0.5, CALM * size**-0.5)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Step, Tensor]:
        change = tap("change", torch.tanh(drive + self.from_past(state)))
        hidden = tap("hidden", state + change)
        return hidden, hidden
