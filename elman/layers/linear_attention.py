"""Linear attention with decay: attention without softmax, whose state is one matrix per head.

Fixed decays give retention (RetNet; Sun et al., 2023); input-dependent decays give gated retention (one decay per head,
as in Mamba-2; gated linear attention, Yang et al., 2024, has one per key dimension).
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from elman.errors import ConfigError
from elman.layers.base import LAYERS, ReadyStep, ScanLayer, at_least_float32
from elman.ops.linear_attention import linear_attention
from elman.ops.taps import tap
from elman.recurrence import reference
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, Step

DECAY_ROOT = 16  # decay = sigmoid^(1/16): a half-open gate still remembers dozens of steps


@LAYERS.register("linear-attention")
class LinearAttention(ScanLayer):
    """Linear attention with decay (retention, gated linear attention): one decaying matrix per head."""

    traits: ClassVar = Traits(
        idea="keys write values into a matrix and queries read from it: attention with a fixed-size state",
        limitation="a matrix holds about as many exact associations as the key width; more interfere",
        training="3·heads·head_size·(4·input + width + 2·min(length, chunk_size) + 2·head_size); chunks at once",
        stepping="heads·head_size·(4·input + width + 3·head_size)",
        state="heads·head_size²",
    )
    sites: ClassVar = {
        "query": "queries (q)",
        "key": "keys (k)",
        "value": "values (v)",
        "decay": "decay of each head's matrix (γ)",
        "state": "each head's matrix (S)",
        "gate": "output gate of each head, after SiLU (g)",
        "output": "the layer's output",
    }

    class Config(ScanLayer.Config):
        num_heads: int = Field(4, ge=1)
        """Number of heads, each with its own decay."""
        head_size: int = Field(0, ge=0)
        """Width of queries, keys and values per head; 0: hidden_size / num_heads."""
        decay: Literal["fixed", "input"] = "input"
        """Decay per head: fixed (1 − 2⁻⁵, 1 − 2⁻⁶, …), or computed from the input at each step."""
        chunk_size: int = Field(64, ge=1)
        """Chunk size of the parallel form: affects speed and memory, not the result."""

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        heads = config.num_heads
        if not config.head_size and self.output_size % heads:
            fitting = [number for number in range(1, self.output_size + 1) if self.output_size % number == 0]
            raise ConfigError(
                f"linear-attention: hidden_size {self.output_size} does not split into {heads} heads; set num_heads to "
                f"one of {', '.join(map(str, fitting))}, or set head_size"
            )
        self.heads, self.head_size = heads, config.head_size or self.output_size // heads
        self.enter = nn.Linear(input_size, 4 * heads * self.head_size, bias=False)
        self.fade = nn.Linear(input_size, heads) if config.decay == "input" else None
        self.leave = nn.Linear(heads * self.head_size, self.output_size, bias=False)

    def initial_state(self, batch: int) -> Tensor:
        return self.zeros(batch, self.heads, self.head_size, self.head_size)

    def parallel(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        query, key, value, gate, log_decay = self._parts(x)
        if lengths is not None:  # zero keys and decay 1 leave the state unchanged at padding
            real = torch.arange(x.shape[1], device=x.device) < lengths.to(x.device).unsqueeze(1)
            key = torch.where(real[..., None, None], key, 0)
            log_decay = torch.where(real.unsqueeze(-1), log_decay, 0)
        with torch.autocast(x.device.type, enabled=False):
            y, state = linear_attention(query, key, value, log_decay, state, chunk=self.config.chunk_size)
        return self._out(x, y, gate), state

    def advance(self, x: Step, state: Tensor) -> tuple[Step, Tensor]:
        query, key, value, gate, decay = self._tapped(x)
        y, state = fade_and_write(query, key, value, decay, state)
        return tap("output", self._out(x, y, tap("gate", gate))), state

    def walk(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        """Like `advance` for a sequence: only the state is updated step by step."""
        *parts, gate, decay = self._tapped(x)

        def step(drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            query, key, value, decay = drive.split([self.head_size] * 3 + [1], -1)
            return fade_and_write(query, key, value, decay.squeeze(-1), state)

        drives = torch.cat([*parts, decay.unsqueeze(-1)], -1)
        y, state = reference.run(ReadyStep(step), drives, state, lengths)
        return tap("output", self._out(x, y, tap("gate", gate))), state

    def _tapped(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        query, key, value, gate, log_decay = self._parts(x)
        query, key, value = tap("query", query), tap("key", key), tap("value", value)
        return query, key, value, gate, tap("decay", log_decay.exp())

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value and gate (..., heads, head size), log decay (..., heads)."""
        query, key, value, gate = self.enter(x).unflatten(-1, (4, self.heads, self.head_size)).unbind(-3)
        if self.fade is None:
            each = 1 - 2.0 ** -(5 + torch.arange(self.heads, dtype=torch.float64, device=x.device))
            log_decay = each.log().to(at_least_float32(x).dtype).expand(*x.shape[:-1], -1)
        else:
            log_decay = F.logsigmoid(at_least_float32(self.fade(x))) / DECAY_ROOT
        query, key, value = (at_least_float32(part) for part in (query, key, value))
        return query * self.head_size**-0.5, key, value, F.silu(gate), log_decay

    def _out(self, x: Tensor, y: Tensor, gate: Tensor) -> Tensor:
        """Normalizes each head's output, whose scale would grow with the number of tokens in the state, and
        projects."""
        answers = F.rms_norm(y, (self.head_size,), eps=1e-5).to(x.dtype)
        return self.leave((answers * gate).flatten(-2))


def fade_and_write(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step of all heads: the read-out for the query, and the new state."""
    state = tap("state", decay[..., None, None] * state + key.unsqueeze(-1) * value.unsqueeze(-2))
    return (state * query.unsqueeze(-1)).sum(-2), state
