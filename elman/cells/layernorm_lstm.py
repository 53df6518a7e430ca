"""LSTM with layer norm (Ba et al., 2016) on the gates' inputs and on the memory."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS, Cell
from elman.cells.lstm import LSTM, LSTMState
from elman.cells.products import PastProduct, start
from elman.ops.layer_norm import LayerNorm
from elman.ops.taps import tap
from elman.registry import Traits
from elman.shapes import Step


@CELLS.register("layernorm-lstm")
class LayerNormLSTM(Cell):
    """LSTM with layer norm on both products and on the memory at the output (Ba et al., 2016)."""

    traits: ClassVar = Traits(
        idea="gates do not saturate when weights grow, which allows larger learning rates and longer texts",
        limitation="norms discard the scale of input and state, which hurts narrow states; no vendor kernel",
        training="3·stepping; one step after another, with norms over 9·width",
        stepping="4·width·(input + width)",
        state="2·width",
    )
    sites: ClassVar = LSTM.sites

    class Config(LSTM.Config):
        pass

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        size = self.hidden_size
        self.from_input = nn.Linear(input_size, 4 * size, bias=False)
        self.from_past = PastProduct(size, parts=4)
        start(self, size, config.orthogonal)
        # The paper has a bias in each norm and in the gates; they are added, so one is enough.
        self.input_norm = LayerNorm(4 * size, bias=config.bias)
        self.past_norm = nn.LayerNorm(4 * size, bias=False)
        self.memory_norm = nn.LayerNorm(size, bias=config.bias)
        if config.bias:
            with torch.no_grad():
                self.input_norm.bias[size : 2 * size] += config.forget_bias

    def initial_state(self, batch: int) -> LSTMState:
        return LSTMState(self.zeros(batch), self.zeros(batch))

    def drive(self, x: Tensor) -> Tensor:
        return self.input_norm(self.from_input(x))

    def step(self, drive: Tensor, state: LSTMState) -> tuple[Step, LSTMState]:
        gates = drive + self.past_norm(self.from_past(state.hidden))
        write, keep, candidate, show = gates.chunk(4, dim=-1)
        write = tap("gate.input", torch.sigmoid(write))
        keep = tap("gate.forget", torch.sigmoid(keep))
        candidate = tap("candidate", torch.tanh(candidate))
        show = tap("gate.output", torch.sigmoid(show))
        memory = tap("memory", keep * state.memory + write * candidate)
        normed = self.memory_norm(memory.to(self.memory_norm.weight.dtype))
        hidden = tap("hidden", (show * torch.tanh(normed)).to(memory.dtype))
        return hidden, LSTMState(hidden, memory)
