"""Mamba (Gu & Dao, 2023): a selective state space, whose step size, write and read depend on the input.

| word | symbol | name in Hugging Face's MambaMixer |
|---|---|---|
| enter, leave | | in_proj, out_proj |
| convolution | | conv1d |
| select | s_B, s_C, s_Δ | x_proj |
| step_size | Δ | dt_proj |
| log_rate | log(−A) | A_log |
| skip | D | D |
"""

import math
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from elman.layers.base import LAYERS, ReadyStep, ScanLayer, at_least_float32
from elman.ops.selective import FORMS, Selection, selective_scan
from elman.ops.short_convolution import short_convolution
from elman.ops.taps import tap
from elman.recurrence import reference
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, Step

HUGGING_FACE = {
    "in_proj": "enter",
    "conv1d": "convolution",
    "x_proj": "select",
    "dt_proj": "step_size",
    "A_log": "log_rate",
    "D": "skip",
    "out_proj": "leave",
}
"""Their parameter (or module) names and ours; shapes are equal."""


class MambaState(NamedTuple):
    window: Tensor  # the last inputs of the convolution (batch, kernel - 1, inner)
    memory: Tensor  # the state space's state (batch, inner, state_size)


@LAYERS.register("mamba")
class Mamba(ScanLayer):
    """Selective state space (Gu & Dao, 2023): input-dependent step size, write and read, with an output gate.

    Training recomputes states in the backward pass instead of storing them.
    """

    traits: ClassVar = Traits(
        idea="a linear recurrence with input-dependent write, decay and read, so time is one parallel scan",
        limitation="a fixed-size state: it cannot look up what it did not keep",
        training="3·inner·(2·input + width + kernel_size + 2·rank + 8·state_size); all positions at once",
        stepping="inner·(2·input + width + kernel_size + 2·rank + 6·state_size); inner is expand·width, rank step_rank",
        state="inner·(state_size + kernel_size − 1)",
    )
    no_decay: ClassVar = ("log_rate",)
    forms = FORMS
    sites: ClassVar = {
        "convolved": "input after the short convolution (x)",
        "delta": "input-dependent step size: large values write, small values keep (Δ)",
        "write": "input vector of the state space, shared by all channels (B)",
        "read": "output vector of the state space, shared by all channels (C)",
        "decay": "decay of the state (exp ΔA)",
        "state": "the state space's state (h)",
        "gate": "output gate, after SiLU (z)",
        "output": "the layer's output",
    }

    class Config(ScanLayer.Config):
        expand: int = Field(2, ge=1)
        """Expansion factor (d_inner = expand × hidden_size)."""
        state_size: int = Field(16, ge=1)
        """State size per inner channel (d_state)."""
        kernel_size: int = Field(4, ge=1)
        """Kernel size of the short convolution (d_conv)."""
        step_rank: int = Field(0, ge=0)
        """Rank of the projection to step sizes (dt_rank); 0: hidden_size / 16, rounded up."""
        bias: bool = False
        """Bias of the input and output projections."""
        convolution_bias: bool = True
        """Bias of the short convolution."""
        min_delta: float = Field(0.001, gt=0)
        """Smallest initial step size."""
        max_delta: float = Field(0.1, gt=0)
        """Largest initial step size."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        width = self.output_size
        self.inner, size = config.expand * width, config.state_size
        self.rank = config.step_rank or math.ceil(width / 16)
        self.enter = nn.Linear(input_size, 2 * self.inner, bias=config.bias)
        self.convolution = nn.Conv1d(
            self.inner, self.inner, config.kernel_size, groups=self.inner, bias=config.convolution_bias
        )
        self.select = nn.Linear(self.inner, self.rank + 2 * size, bias=False)
        self.step_size = nn.Linear(self.rank, self.inner)
        self.log_rate = nn.Parameter(torch.arange(1.0, size + 1).log().repeat(self.inner, 1))
        self.skip = nn.Parameter(torch.ones(self.inner))
        self.leave = nn.Linear(self.inner, width, bias=config.bias)
        nn.init.uniform_(self.step_size.weight, -(self.rank**-0.5), self.rank**-0.5)
        low, high = sorted((math.log(config.min_delta), math.log(config.max_delta)))
        with torch.no_grad():  # softplus(bias) is log-uniform between the step sizes
            self.step_size.bias.copy_(torch.empty(self.inner).uniform_(low, high).exp().expm1().log())

    def initial_state(self, batch: int) -> MambaState:
        return MambaState(
            self.zeros(batch, self.config.kernel_size - 1, self.inner),
            self.zeros(batch, self.inner, self.config.state_size),
        )

    def parallel(self, x: Sequence, state: MambaState, lengths: Lengths | None) -> tuple[Sequence, MambaState]:
        u, gate, seen = self._convolve(x, state)
        chosen = self._choose(u)
        if lengths is not None:  # step size 0 leaves the state unchanged at padding
            lengths = lengths.to(x.device)
            real = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)
            chosen = chosen._replace(delta=torch.where(real.unsqueeze(-1), chosen.delta, 0))
        with torch.autocast(x.device.type, enabled=False):
            y, memory = selective_scan(u, chosen, self._rate(), state.memory, at_least_float32(self.skip), gate)
        return self.leave(y.to(x.dtype)), MambaState(self._window(seen, lengths, state.window), memory)

    def advance(self, x: Step, state: MambaState) -> tuple[Step, MambaState]:
        u, gate = self.enter(x).chunk(2, dim=-1)
        seen = torch.cat([state.window.to(u.dtype), u.unsqueeze(1)], 1)
        u = tap("convolved", F.silu(self.convolution(seen.transpose(1, 2)).squeeze(-1)))
        delta, write, read = (tap(name, part) for name, part in self._choose(u)._asdict().items())
        decay = tap("decay", (delta.unsqueeze(-1) * self._rate()).exp())
        memory = tap("state", decay * state.memory + (delta * at_least_float32(u)).unsqueeze(-1) * write.unsqueeze(1))
        y = (memory * read.unsqueeze(1)).sum(-1)
        y = tap("output", self._out(x, u, y, tap("gate", F.silu(gate))))
        return y, MambaState(self._window(seen, None, state.window), memory)

    def walk(self, x: Sequence, state: MambaState, lengths: Lengths | None) -> tuple[Sequence, MambaState]:
        """Like `advance` for a sequence: only the state is updated step by step."""
        u, gate, seen = self._convolve(x, state)
        u = tap("convolved", u)
        delta, write, read = (tap(name, part) for name, part in self._choose(u)._asdict().items())
        decay = tap("decay", (delta.unsqueeze(-1) * self._rate()).exp())
        new = (delta * at_least_float32(u)).unsqueeze(-1) * write.unsqueeze(2)
        history, memory = reference.run(ReadyStep(_recur), torch.stack([decay, new], 2), state.memory, lengths)
        y = (history @ read.unsqueeze(-1)).squeeze(-1)
        y = tap("output", self._out(x, u, y, tap("gate", F.silu(gate))))
        return y, MambaState(self._window(seen, lengths, state.window), memory)

    def _convolve(self, x: Sequence, state: MambaState) -> tuple[Sequence, Sequence, Tensor]:
        """The input of the state space, the gate before SiLU, and all inputs of the convolution."""
        u, gate = self.enter(x).chunk(2, dim=-1)
        seen = torch.cat([state.window.to(u.dtype), u], 1)
        u = F.silu(short_convolution(seen, self.convolution.weight, self.convolution.bias))
        return u, gate, seen

    def _choose(self, u: Tensor) -> Selection:
        """Step sizes (..., inner), write and read (..., state_size), in at least float32."""
        size = self.config.state_size
        delta, write, read = self.select(u).split([self.rank, size, size], dim=-1)
        delta = F.softplus(at_least_float32(self.step_size(delta)))
        return Selection(delta, at_least_float32(write), at_least_float32(read))

    def _rate(self) -> Tensor:
        return -at_least_float32(self.log_rate).exp()

    def _out(self, x: Tensor, u: Tensor, y: Tensor, gate: Tensor) -> Tensor:
        return self.leave(((y + at_least_float32(self.skip) * at_least_float32(u)) * gate).to(x.dtype))

    def _window(self, seen: Tensor, lengths: Lengths | None, like: Tensor) -> Tensor:
        """The last real inputs of each row."""
        size = like.shape[1]
        if lengths is None:
            return seen[:, seen.shape[1] - size :].to(like.dtype, copy=True)  # a view would keep all inputs in memory
        places = lengths.to(seen.device).unsqueeze(1) + torch.arange(size, device=seen.device)
        return seen.gather(1, places.unsqueeze(-1).expand(-1, -1, seen.shape[-1])).to(like.dtype)


def _recur(decay_and_new: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    decay, new = decay_and_new.unbind(1)
    state = tap("state", decay * state + new)
    return state, state
