"""Causal self-attention as a sequence layer: its state is the KV cache of the last positions."""

from typing import ClassVar, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from elman.layers.base import LAYERS
from elman.layers.heads import HeadedLayer, HeadsConfig
from elman.layers.ring import Ring, ring_of
from elman.ops.attention import attend, attend_to_past, may_read_values
from elman.ops.taps import listening, stepping
from elman.registry import Pace, Traits
from elman.shapes import Lengths, Sequence, Step


class AttentionState(NamedTuple):
    """KV cache of the last positions of each row, newest last; zeros where a row has seen fewer."""

    keys: Tensor  # (batch, kv_heads, places, head_size)
    values: Tensor
    seen: Tensor  # (batch,): positions since the start, including evicted ones

    def fixed(self, more: int) -> Ring:
        """The same cache as a ring buffer with capacity for `more` positions, updated in place."""
        return ring_of(*self, more)


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

    def forward(
        self, x: Sequence, state: AttentionState | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, AttentionState]:
        state = self.initial_state(len(x)) if state is None else state
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.output_size), state
        query, key, value = self.project(x, state.seen)
        past = _filled(state)
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
        after = _after(state, all_keys, all_values, x.shape[1] if lengths is None else lengths.to(x.device))
        return self.join(read), after

    def step(self, x: Step, state: AttentionState | Ring) -> tuple[Step, AttentionState | Ring]:
        sequence = x.unsqueeze(1)
        outputs: Sequence
        after: AttentionState | Ring
        with stepping(False):
            if isinstance(state, Ring):
                outputs, after = self._step_ring(sequence, state)
            else:
                outputs, after = self.forward(sequence, state)
        return outputs.squeeze(1), after

    def _step_ring(self, x: Sequence, ring: Ring) -> tuple[Sequence, Ring]:
        """One position, written to the ring buffer."""
        assert not listening(), "a ring buffer is not in order, so it cannot be recorded"
        query, key, value = self.project(x, ring.seen)
        distances = ring.distances()
        bias = 0.0 if self.by_distance is None else -self.by_distance.view(1, -1, 1, 1) * distances
        bias = torch.where(distances <= ring.seen.view(-1, 1, 1, 1), bias, -torch.inf)  # each sees at least itself
        ring.write(key, value)
        keys, values = ring.keys.to(query.dtype), ring.values.to(query.dtype)
        return self.join(attend(query, keys, values, None, self.score, bias=bias)), ring


def _filled(state: AttentionState) -> int:
    """Number of last cache positions that can be non-empty; expanded zeros (stride 0) are certainly empty."""
    places = state.keys.shape[2]
    if may_read_values(state.seen):
        return min(places, int(state.seen.max())) if len(state.seen) else 0
    return 0 if state.keys.stride(2) == 0 else places


def _join(old: Tensor, new: Tensor, filled: int) -> tuple[Tensor, Tensor]:
    """The visible keys or values, and the whole cache followed by the new ones in the precision of the state."""
    whole = torch.cat([old, new.to(old.dtype)], 2)
    return new if filled == 0 else whole[:, :, old.shape[2] - filled :].to(new.dtype), whole


def _after(state: AttentionState, keys: Tensor, values: Tensor, new: int | Tensor) -> AttentionState:
    """The last cache positions of each row after its `new` real positions."""
    places = state.keys.shape[2]
    if isinstance(new, int):
        # a view of the concatenation, or a copy where a view would keep much unused memory alive
        last = [part[:, :, new:] if new <= places else part[:, :, new:].clone() for part in (keys, values)]
    else:
        index = (new.unsqueeze(1) + torch.arange(places, device=new.device))[:, None, :, None]
        last = [part.gather(2, index.expand_as(state.keys)) for part in (keys, values)]
    return AttentionState(last[0], last[1], state.seen + new)
