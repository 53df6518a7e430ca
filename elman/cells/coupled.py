"""LSTM with coupled input and forget gates (CIFG; Greff et al., 2015)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS, Cell
from elman.cells.lstm import LSTM, LSTMState
from elman.cells.products import PastProduct, start
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Step


@CELLS.register("coupled")
class Coupled(Cell):
    """LSTM with coupled input and forget gates (Greff et al., 2015)."""

    traits: ClassVar = Traits(
        idea="the input gate is 1 - forget: the memory is an average of candidates and stays in [-1, 1]",
        limitation="cannot keep everything and add to it, so it cannot count as an LSTM can",
        training="3·stepping; one step after another",
        stepping="3·width·(input + width)",
        state="2·width",
    )
    sites: ClassVar = {
        "gate.forget": "forget gate (f); the input gate is 1 - f",
        "gate.output": "output gate (o)",
        "candidate": "candidate (g)",
        "memory": "memory cell (c)",
        "hidden": "hidden state, and the output (h)",
    }

    class Config(LSTM.Config):
        pass

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        size = self.hidden_size
        self.from_input = nn.Linear(input_size, 3 * size, bias=config.bias)
        self.from_past = PastProduct(size, parts=3)
        start(self, size, config.orthogonal)
        if config.bias:
            with torch.no_grad():
                self.from_input.bias[:size] += config.forget_bias

    def initial_state(self, batch: int) -> LSTMState:
        return LSTMState(self.zeros(batch), self.zeros(batch))

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: LSTMState) -> tuple[Step, LSTMState]:
        keep, candidate, show = (drive + self.from_past(state.hidden)).chunk(3, dim=-1)
        keep = tap("gate.forget", torch.sigmoid(keep))
        candidate = tap("candidate", torch.tanh(candidate))
        show = tap("gate.output", torch.sigmoid(show))
        memory = tap("memory", candidate + keep * (state.memory - candidate))
        hidden = tap("hidden", show * torch.tanh(memory))
        return hidden, LSTMState(hidden, memory)
