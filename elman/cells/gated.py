"""The minimal gated cell: one update gate, nothing else."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS, Cell
from elman.cells.products import PastProduct, start
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Step


@CELLS.register("gated")
class Gated(Cell):
    """Update gate only: each unit interpolates between its past and the candidate."""

    traits: ClassVar = Traits(
        idea="h' = z h + (1 - z) tanh(...): where the gate is open, past and gradient pass unchanged",
        limitation="the whole state is output and seen by the candidate: no output gate and no reset",
        training="3·stepping; one step after another",
        stepping="2·width·(input + width)",
        state="width",
    )
    sites: ClassVar = {
        "gate.update": "share of the state that is kept (z)",
        "candidate": "proposed new state",
        "hidden": "the state, and the output (h)",
    }

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        self.from_input = nn.Linear(input_size, 2 * self.hidden_size, bias=config.bias)
        self.from_past = PastProduct(self.hidden_size, parts=2)
        start(self, self.hidden_size, config.orthogonal)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Step, Tensor]:
        update, candidate = (drive + self.from_past(state)).chunk(2, dim=-1)
        update = tap("gate.update", torch.sigmoid(update))
        candidate = tap("candidate", torch.tanh(candidate))
        hidden = tap("hidden", candidate + update * (state - candidate))
        return hidden, hidden
