"""Long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate by Gers et al., 2000) and its variants."""

from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from elman.cells.base import CELLS, BlockCell, Cell, PastProduct, start
from elman.ops.norms import LayerNorm
from elman.ops.taps import tap
from elman.recurrence.vendor import VendorCall
from elman.registry import SuggestedRate, Traits
from elman.shapes import Step


class LSTMState(NamedTuple):
    hidden: Tensor
    memory: Tensor


class MemoryCell(BlockCell):
    """What the LSTM and its variants share: a memory beside the hidden state, and a forget gate."""

    class Config(Cell.Config):
        forget_bias: float = 1.0
        """Added to the initial bias of the forget gate: values above 0 keep the memory at first."""

    config: Config
    forget_block: ClassVar[int] = 1
    """The block of the forget gate in the products."""

    def __init__(self, config: Config, input_size: int, input_bias: bool = True):
        super().__init__(config, input_size, input_bias)
        self.open_forget_gate(self.from_input.bias)

    @torch.no_grad()
    def open_forget_gate(self, bias: Tensor | None) -> None:
        if bias is not None:
            bias.unflatten(0, (self.blocks, -1))[self.forget_block] += self.config.forget_bias

    def initial_state(self, batch: int) -> LSTMState:
        return LSTMState(self.zeros(batch), self.zeros(batch))


@CELLS.register("lstm")
class LSTM(MemoryCell):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997)."""

    traits: ClassVar = Traits(
        idea="a memory that gates add to and decay: gradients pass through it, and it can count",
        limitation="one vector holds the whole past, so it cannot recall a long text exactly",
        training="3·stepping; one step after another",
        stepping="4·width·(input + width)",
        state="2·width",
    )
    suggested_rate: ClassVar = SuggestedRate(1.024)
    sites: ClassVar = {
        "gate.input": "input gate: share of the candidate that is written (i)",
        "gate.forget": "forget gate: share of the memory that is kept (f)",
        "gate.output": "output gate: share of the memory that is exposed (o)",
        "candidate": "candidate (g)",
        "memory": "memory cell (c)",
        "hidden": "hidden state, and the output (h)",
    }
    blocks = 4

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


@CELLS.register("coupled")
class Coupled(MemoryCell):
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
    blocks = 3
    forget_block = 0

    def step(self, drive: Tensor, state: LSTMState) -> tuple[Step, LSTMState]:
        keep, candidate, show = (drive + self.from_past(state.hidden)).chunk(3, dim=-1)
        keep = tap("gate.forget", torch.sigmoid(keep))
        candidate = tap("candidate", torch.tanh(candidate))
        show = tap("gate.output", torch.sigmoid(show))
        memory = tap("memory", candidate + keep * (state.memory - candidate))
        hidden = tap("hidden", show * torch.tanh(memory))
        return hidden, LSTMState(hidden, memory)


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


@CELLS.register("layernorm-lstm")
class LayerNormLSTM(MemoryCell):
    """LSTM with layer norm on both products and on the memory at the output (Ba et al., 2016)."""

    traits: ClassVar = Traits(
        idea="gates do not saturate when weights grow, which allows larger learning rates and longer texts",
        limitation="norms discard the scale of input and state, which hurts narrow states; no vendor kernel",
        training="3·stepping; one step after another, with norms over 9·width",
        stepping="4·width·(input + width)",
        state="2·width",
    )
    sites: ClassVar = LSTM.sites
    blocks = 4

    def __init__(self, config: MemoryCell.Config, input_size: int):
        super().__init__(config, input_size, input_bias=False)
        size = self.hidden_size
        # The paper has a bias in each norm and in the gates; they are added, so one is enough.
        self.input_norm = LayerNorm(4 * size, bias=config.bias)
        self.past_norm = nn.LayerNorm(4 * size, bias=False)
        self.memory_norm = nn.LayerNorm(size, bias=config.bias)
        self.open_forget_gate(self.input_norm.bias)

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
