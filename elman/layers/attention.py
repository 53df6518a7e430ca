"""Multi-head self-attention (Vaswani et al., 2017): causal, with a KV cache as its state, and bidirectional."""

from typing import ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor

from elman.layers.base import LAYERS, TwoWayLayer
from elman.layers.heads import HeadedLayer, HeadsConfig
from elman.layers.kv_cache import AttentionState, Ring
from elman.ops.attention import attend, attend_both_ways, attend_to_past
from elman.ops.taps import listening
from elman.registry import Pace, Traits
from elman.shapes import Lengths, Sequence


@LAYERS.register("attention")
class Attention(HeadedLayer):
    """Causal multi-head attention with optional grouped queries, positions and sliding window.

    The state has its full size from the start: without carried state, a context as long as the training sequences
    suffices.
    """

    traits: ClassVar = Traits(
        idea="every position attends to all positions in its context at once",
        limitation="no access beyond its context, no order without positions; cost per token grows with the context",
        training="3·stepping; all positions at once",
        stepping="2·head_size·(width·(heads + kv_heads) + heads·min(length, reach)); reach: window or context",
        state="2·(reach − 1)·kv_heads·head_size + 1",
    )
    pace: ClassVar = Pace(0.128, warmup=100)
    sites: ClassVar = {
        **HeadedLayer.sites,
        "scores": "attention scores: (time, heads, context); the last is the position itself, -inf where empty",
        "weights": "attention weights, laid out like the scores; by_position makes a square (α)",
    }

    class Config(HeadsConfig):
        context: int = Field(1024, ge=1)
        """Positions that a token can attend to, including itself; the KV cache holds all but one."""
        window: int = Field(0, ge=0)
        """Sliding window attention: a shorter context; 0: the whole context."""

        @model_validator(mode="after")
        def _fits(self) -> "Attention.Config":
            if self.window > self.context:
                raise ValueError(f"window {self.window} must not exceed context {self.context}")
            return self

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        self.reach = config.window or config.context

    def initial_state(self, batch: int) -> AttentionState:
        """Expanded zeros that take no memory."""
        dtype = torch.promote_types(self.slopes.dtype, torch.float32)
        zero = torch.zeros((), dtype=dtype, device=self.slopes.device)
        empty = zero.expand(batch, self.kv_heads, self.reach - 1, self.head_size)
        return AttentionState(empty, empty, torch.zeros(batch, dtype=torch.long, device=zero.device))

    def run(
        self, x: Sequence, state: AttentionState | Ring, lengths: Lengths | None
    ) -> tuple[Sequence, AttentionState | Ring]:
        if isinstance(state, Ring):
            return self._run_ring(x, state)
        query, key, value = self.project(x, state.seen)
        past = state.filled()
        (keys, all_keys), (values, all_values) = _join(state.keys, key, past), _join(state.values, value, past)
        read = attend_to_past(
            query,
            keys,
            values,
            self.score,
            seen=state.seen,
            reach=self.reach,
            slopes=self.by_distance,
            dropout=self.dropped,
        )
        new = x.shape[1] if lengths is None else lengths.to(x.device)
        return self.join(read), state.after(all_keys, all_values, new)

    def _run_ring(self, x: Sequence, ring: Ring) -> tuple[Sequence, Ring]:
        """One position, written to the ring buffer."""
        assert not listening(), "a ring buffer is not in order, so it cannot be recorded"
        query, key, value = self.project(x, ring.seen)
        distances = ring.distances()
        bias = 0.0 if self.by_distance is None else -self.by_distance.view(1, -1, 1, 1) * distances
        bias = torch.where(distances <= ring.seen.view(-1, 1, 1, 1), bias, -torch.inf)  # each sees at least itself
        ring.write(key, value)
        keys, values = ring.keys.to(query.dtype), ring.values.to(query.dtype)
        return self.join(attend(query, keys, values, None, self.score, bias=bias)), ring


def _join(old: Tensor, new: Tensor, filled: int) -> tuple[Tensor, Tensor]:
    """The visible keys or values, and the whole cache followed by the new ones in the precision of the state."""
    whole = torch.cat([old, new.to(old.dtype)], 2)
    return new if filled == 0 else whole[:, :, old.shape[2] - filled :].to(new.dtype), whole


@LAYERS.register("two-way-attention")
class TwoWayAttention(TwoWayLayer, HeadedLayer):
    """Bidirectional multi-head self-attention.

    A window limits what a position sees, but not the cost.
    """

    traits: ClassVar = Traits(
        idea="every position attends to its whole row, before and after it",
        limitation="needs the whole text: no step form; insensitive to order without positions",
        training="6·head_size·(width·(heads + kv_heads) + heads·length); all positions at once",
        stepping="none; it has no step form",
        state="0",
    )
    pace: ClassVar = Pace(0.128, warmup=100)
    sites: ClassVar = {
        **HeadedLayer.sites,
        "scores": "attention scores: (time, heads, time), -inf where masked",
        "weights": "attention weights, laid out like the scores (α)",
    }

    class Config(HeadsConfig):
        window: int = Field(0, ge=0)
        """Positions that a token can attend to on each side, including itself; 0: all."""

    config: Config

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, dtype=self.slopes.dtype, device=self.slopes.device)

    def run(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        query, key, value = self.project(x, torch.zeros(1, dtype=torch.long, device=x.device))
        read = attend_both_ways(
            query,
            key,
            value,
            self.score,
            lengths=lengths,
            reach=self.config.window,
            slopes=self.by_distance,
            dropout=self.dropped,
        )
        return self.join(read), state
