"""Multi-head self-attention (Vaswani et al., 2017): causal, with a KV cache as its state, and bidirectional."""

from typing import ClassVar, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from elman.layers.base import LAYERS, TwoWayLayer
from elman.layers.heads import HeadedLayer, HeadsConfig
from elman.ops.attention import attend, attend_both_ways, attend_to_past, may_read_values
from elman.ops.taps import listening
from elman.registry import SuggestedRate, Traits
from elman.shapes import Lengths, Sequence


class AttentionState(NamedTuple):
    """KV cache of the last positions of each row, newest last; zeros where a row has seen fewer."""

    keys: Tensor  # (batch, kv_heads, places, head_size)
    values: Tensor
    seen: Tensor  # (batch,): positions since the start, including evicted ones

    def filled(self) -> int:
        """Number of last places that can be non-empty; expanded zeros (stride 0) are certainly empty."""
        places = self.keys.shape[2]
        if may_read_values(self.seen):
            return min(places, int(self.seen.max())) if len(self.seen) else 0
        return 0 if self.keys.stride(2) == 0 else places

    def after(self, keys: Tensor, values: Tensor, new: int | Tensor) -> "AttentionState":
        """The cache after `new` real positions of each row; `keys` and `values` are its own, then all new ones."""
        places = self.keys.shape[2]
        if isinstance(new, int):
            # a view of the concatenation, or a copy where a view would keep much unused memory alive
            last = [part[:, :, new:] if new <= places else part[:, :, new:].clone() for part in (keys, values)]
        else:
            index = (new.unsqueeze(1) + torch.arange(places, device=new.device))[:, None, :, None]
            last = [part.gather(2, index.expand_as(self.keys)) for part in (keys, values)]
        return AttentionState(last[0], last[1], self.seen + new)

    def fixed(self, more: int) -> "Ring":
        """The same cache as a ring buffer with room for `more` positions, updated in place.

        Each position has its place whenever the ring was made, so that sums over them have one order. If not everything
        visible fits, its size is a power of two, so that texts of similar length share one CUDA graph.
        """
        batch, _, past, _ = self.keys.shape
        needed = int(self.seen.max() if batch else 0) + more
        places = min(past + 1, 1 << (needed - 1).bit_length())
        held = torch.arange(1 - places, 0, device=self.seen.device)  # positions, counted from the next one
        index = ((self.seen.unsqueeze(1) + held) % places)[:, None, :, None]
        parts = []
        for part in (self.keys, self.values):
            buffer = part.new_zeros(*part.shape[:2], places, part.shape[3])
            last = part[:, :, past - places + 1 :]
            parts.append(buffer.scatter_(2, index.expand_as(last), last))
        return Ring(parts[0], parts[1], self.seen.clone(), self.seen % places)


class Ring(NamedTuple):
    """KV cache of the last positions, updated in place: a step overwrites the oldest key and value of each row.

    Other states are immutable values, so each step creates a new one, which suits training, branching and storing. A
    CUDA graph needs fixed addresses, and long generation should not copy the cache for every token. The counters are
    new tensors: a row whose old ones are kept has not stepped, for the place that was written is not visible to it.
    """

    keys: Tensor  # (batch, kv_heads, places, head_size)
    values: Tensor
    seen: Tensor  # (batch,): positions since the start
    place: Tensor  # (batch,): index of the next position

    def write(self, key: Tensor, value: Tensor) -> "Ring":
        """Appends one position (batch, kv_heads, 1, head_size)."""
        index = self.place.view(-1, 1, 1, 1).expand_as(key)
        for buffer, new in ((self.keys, key), (self.values, value)):
            buffer.scatter_(2, index, new.to(buffer.dtype))
        return self._replace(seen=self.seen + 1, place=(self.place + 1) % self.keys.shape[2])

    def distances(self) -> Tensor:
        """Distance of each place (batch, places) from the next position, whose own place has distance 0."""
        places = self.keys.shape[2]
        return (self.place.unsqueeze(1) - torch.arange(places, device=self.place.device)) % places

    def plain(self) -> AttentionState:
        """The cache as a value, oldest first; of as many positions as the ring has places, but for the next one."""
        past = self.keys.shape[2] - 1
        index = (self.place.unsqueeze(1) + torch.arange(1, past + 1, device=self.place.device)) % (past + 1)
        index = index[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])
        return AttentionState(self.keys.gather(2, index), self.values.gather(2, index), self.seen.clone())


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
    suggested_rate: ClassVar = SuggestedRate(0.128, warmup=100)
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
        zero = self.slopes.new_zeros((), dtype=torch.promote_types(self.slopes.dtype, torch.float32))
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
        outputs = self.attend(attend_to_past, query, keys, values, seen=state.seen, reach=self.reach)
        new = x.shape[1] if lengths is None else lengths.to(x.device)
        return outputs, state.after(all_keys, all_values, new)

    def _run_ring(self, x: Sequence, ring: Ring) -> tuple[Sequence, Ring]:
        """One position, written to the ring buffer."""
        assert not listening(), "a ring buffer is not in order, so it cannot be recorded"
        query, key, value = self.project(x, ring.seen)
        distances = ring.distances()[:, None, None]
        bias = 0.0 if self.by_distance is None else -self.by_distance.view(1, -1, 1, 1) * distances
        bias = torch.where(distances <= ring.seen.view(-1, 1, 1, 1), bias, -torch.inf)  # each sees at least itself
        ring = ring.write(key, value)
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
    suggested_rate: ClassVar = SuggestedRate(0.128, warmup=100)
    sites: ClassVar = {
        **HeadedLayer.sites,
        "scores": "attention scores: (time, heads, time), -inf where masked",
        "weights": "attention weights, laid out like the scores (α)",
    }

    class Config(HeadsConfig):
        window: int = Field(0, ge=0)
        """Positions that a token can attend to on each side, including itself; 0: all."""

    def initial_state(self, batch: int) -> Tensor:
        return self.slopes.new_zeros(batch, 0)

    def run(self, x: Sequence, state: Tensor, lengths: Lengths | None) -> tuple[Sequence, Tensor]:
        projected = self.project(x, torch.zeros(1, dtype=torch.long, device=x.device))
        return self.attend(attend_both_ways, *projected, lengths=lengths, reach=self.config.window), state
