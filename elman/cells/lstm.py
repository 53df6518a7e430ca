"""Long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate by Gers et al., 2000)."""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS, Cell
from elman.cells.products import PastProduct, start
from elman.ops.taps import tap
from elman.recurrence.vendor import VendorCall
from elman.registry import Pace, Traits
from elman.shapes import Step


class LSTMState(NamedTuple):
    hidden: Tensor
    memory: Tensor


@CELLS.register("lstm")
class LSTM(Cell):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997)."""

    traits: ClassVar = Traits(
        idea="a memory that gates add to and decay: gradients pass through it, and it can count",
        limitation="one vector holds the whole past, so it cannot recall a long text exactly",
        training="3·stepping; one step after another",
        stepping="4·width·(input + width)",
        state="2·width",
    )
    pace: ClassVar = Pace(1.024)
    sites: ClassVar = {
        "gate.input": "input gate: share of the candidate that is written (i)",
        "gate.forget": "forget gate: share of the memory that is kept (f)",
        "gate.output": "output gate: share of the memory that is exposed (o)",
        "candidate": "candidate (g)",
        "memory": "memory cell (c)",
        "hidden": "hidden state, and the output (h)",
    }

    class Config(Cell.Config):
        forget_bias: float = 1.0
        """Added to the initial bias of the forget gate: values above 0 keep the memory at first."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        size = self.hidden_size
        self.from_input = nn.Linear(input_size, 4 * size, bias=config.bias)
        self.from_past = PastProduct(size, parts=4)
        start(self, size, config.orthogonal)
        if config.bias:
            with torch.no_grad():
                self.from_input.bias[size : 2 * size] += config.forget_bias

    def initial_state(self, batch: int) -> LSTMState:
        return LSTMState(self.zeros(batch), self.zeros(batch))

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: LSTMState) -> tuple[Step, LSTMState]:
        write, keep, candidate, show = (drive + self.from_past(state.hidden)).chunk(4, dim=-1)
        write = tap("gate.input", torch.sigmoid(write))
        keep = tap("gate.forget", torch.sigmoid(keep))
        candidate = tap("candidate", torch.tanh(candidate))
        show = tap("gate.output", torch.sigmoid(show))
        memory = tap("memory", keep * state.memory + write * candidate)
        hidden = tap("hidden", show * torch.tanh(memory))
        return hidden, LSTMState(hidden, memory)

    def vendor(self) -> VendorCall:
        return VendorCall.of("lstm", self.from_input, self.from_past.weight_in_use)
