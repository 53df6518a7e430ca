"""Peephole LSTM (Gers & Schmidhuber, 2000): gates have connections from the memory."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS
from elman.cells.lstm import LSTM, LSTMState
from elman.cells.products import PastProduct, start
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Step


@CELLS.register("peephole")
class Peephole(LSTM):
    """Peephole LSTM (Gers & Schmidhuber, 2000): gates see the memory."""

    traits: ClassVar = Traits(
        idea="gates see the memory even if the output gate is closed, which lets a cell measure time",
        limitation="on text it gains little over an LSTM (Greff et al., 2015), and there is no vendor kernel",
        training="3·stepping; one step after another; 3·width² for 3·width if full",
        stepping="4·width·(input + width) + 3·width",
        state="2·width",
    )

    class Config(LSTM.Config):
        form: Literal["diagonal", "full"] = "diagonal"
        """Peephole connections: diagonal (elementwise weights) or full (matrices)."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        product = PastProduct if config.form == "full" else Elementwise
        self.from_memory = product(self.hidden_size, parts=2)
        self.from_new_memory = product(self.hidden_size, parts=1)
        for each in (self.from_memory, self.from_new_memory):
            start(each, self.hidden_size, config.orthogonal)

    def step(self, drive: Tensor, state: LSTMState) -> tuple[Step, LSTMState]:
        write, keep, candidate, show = (drive + self.from_past(state.hidden)).chunk(4, dim=-1)
        write_memory, keep_memory = self.from_memory(state.memory).chunk(2, dim=-1)
        write = tap("gate.input", torch.sigmoid(write + write_memory))
        keep = tap("gate.forget", torch.sigmoid(keep + keep_memory))
        candidate = tap("candidate", torch.tanh(candidate))
        memory = tap("memory", keep * state.memory + write * candidate)
        show = tap("gate.output", torch.sigmoid(show + self.from_new_memory(memory)))
        hidden = tap("hidden", show * torch.tanh(memory))
        return hidden, LSTMState(hidden, memory)

    def vendor(self) -> str:  # type: ignore[override]
        return "no vendor kernel supports peepholes"


class Elementwise(nn.Module):
    """A PastProduct with diagonal blocks: one weight per unit and part."""

    def __init__(self, size: int, parts: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(parts, size))

    def forward(self, past: Tensor) -> Tensor:
        return (past.unsqueeze(-2) * self.weight).flatten(-2)
