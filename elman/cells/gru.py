"""Gated recurrent unit (Cho et al., 2014): reset gate and update gate; and a cell with the update gate alone."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS, BlockCell, Cell, PastProduct, start
from elman.ops.taps import tap
from elman.recurrence.vendor import VendorCall
from elman.registry import Traits
from elman.shapes import Step


@CELLS.register("gru")
class GRU(Cell):
    """Gated recurrent unit (Cho et al., 2014)."""

    traits: ClassVar = Traits(
        idea="an update gate lets the past pass unchanged; a reset gate hides it from the candidate",
        limitation="the state is an average of candidates and fully exposed: it cannot count as an LSTM can",
        training="3·stepping; one step after another",
        stepping="3·width·(input + width)",
        state="width",
    )
    sites: ClassVar = {
        "gate.reset": "reset gate: share of the past that the candidate sees (r)",
        "gate.update": "update gate: share of the state that is kept (z)",
        "candidate": "candidate (ñ)",
        "hidden": "the state, and the output (h)",
    }

    class Config(Cell.Config):
        reset: Literal["after", "before"] = "after"
        """Apply the reset gate after the matrix product (as fused kernels do) or before it (as in the paper)."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        size = self.hidden_size
        self.from_input = nn.Linear(input_size, 3 * size, bias=config.bias)
        self.resets_after = config.reset == "after"
        if self.resets_after:
            self.from_past = PastProduct(size, parts=3)
            # The reset gate multiplies it, so it cannot be merged with the input's bias.
            self.past_bias = nn.Parameter(torch.empty(size)) if config.bias else None
        else:
            self.from_past = PastProduct(size, parts=2)
            self.from_reset_past = PastProduct(size, parts=1)
        start(self, size, config.orthogonal)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Step, Tensor]:
        reset, update, candidate = drive.chunk(3, dim=-1)
        reset_past, update_past, *candidate_past = self.from_past(state).split(self.hidden_size, dim=-1)
        reset = tap("gate.reset", torch.sigmoid(reset + reset_past))
        update = tap("gate.update", torch.sigmoid(update + update_past))
        if self.resets_after:
            past = candidate_past[0] if self.past_bias is None else candidate_past[0] + self.past_bias
            past = reset * past
        else:
            past = self.from_reset_past(reset * state)
        candidate = tap("candidate", torch.tanh(candidate + past))
        hidden = tap("hidden", candidate + update * (state - candidate))
        return hidden, hidden

    def vendor(self) -> VendorCall | str:
        if not self.resets_after:
            return "gru with reset before the product has no vendor kernel"
        past_bias = None
        if self.past_bias is not None:
            past_bias = torch.cat([self.past_bias.new_zeros(2 * self.hidden_size), self.past_bias])
        return VendorCall.of("gru", self.from_input, self.from_past.weight_in_use, past_bias)


@CELLS.register("gated")
class Gated(BlockCell):
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
    blocks = 2

    def step(self, drive: Tensor, state: Tensor) -> tuple[Step, Tensor]:
        update, candidate = (drive + self.from_past(state)).chunk(2, dim=-1)
        update = tap("gate.update", torch.sigmoid(update))
        candidate = tap("candidate", torch.tanh(candidate))
        hidden = tap("hidden", candidate + update * (state - candidate))
        return hidden, hidden
