"""Cross-attention: each position attends to a source, whose keys and values are the state."""

from typing import ClassVar, NamedTuple

import torch
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional as F

from elman.layers.heads import HeadedLayer, HeadsConfig
from elman.ops.attention import attend
from elman.ops.taps import tap
from elman.shapes import Lengths, Sequence


class Source(NamedTuple):
    """Keys and values of the source, the same for all positions of a row."""

    keys: Tensor  # (batch, kv_heads, places, head_size)
    values: Tensor
    lengths: Tensor  # (batch,): real positions

    def fixed(self, more: int) -> "Source":
        """A copy padded to a power of two, so that sources of similar length share one CUDA graph."""
        places = self.keys.shape[2]
        padding = (0, 0, 0, (1 << (places - 1).bit_length()) - places)
        return Source(F.pad(self.keys, padding), F.pad(self.values, padding), self.lengths.clone())


class CrossAttention(HeadedLayer):
    """Attention over a source sequence (Bahdanau et al., 2015).

    The source is as wide as the input. `read` makes a state of it, which steps do not change, so the laws of a sequence
    layer hold and rows of the state can be selected. The initial state is an empty source. Not in LAYERS, because only
    decoders have a source.
    """

    name: ClassVar = "cross-attention"
    sites: ClassVar = {
        **HeadedLayer.sites,
        "scores": "attention scores of source positions: (time, heads, places), -inf at padding",
        "weights": "attention weights of source positions, laid out like the scores (α)",
    }

    class Config(HeadsConfig):
        @model_validator(mode="after")
        def _no_positions(self) -> "CrossAttention.Config":
            if self.positions != "none":
                raise ValueError(
                    f"positions {self.positions} encode distances within one sequence, but the source is another; "
                    "remove them here and set them in encoder and decoder"
                )
            return self

    def initial_state(self, batch: int) -> Source:
        places = self.slopes.new_zeros(batch, self.kv_heads, 1, self.head_size)
        return Source(places, places, torch.zeros(batch, dtype=torch.long, device=places.device))

    def read(self, source: Sequence, lengths: Lengths | None = None) -> Source:
        """The state for a source: its keys and values."""
        batch, places, _ = source.shape
        if places == 0:
            return self.initial_state(batch)
        lengths = torch.full((batch,), places) if lengths is None else lengths
        lengths = lengths.to(source.device)
        both = self._heads(source, slice(self.heads * self.head_size, None))
        key, value = both.chunk(2, 2) if self.config.projections else (both, both)
        if self.config.query_key_norm:
            key = self.key_norm(key).to(key.dtype)
        key, value = tap("key", key), tap("value", value)
        real = torch.arange(places, device=source.device) < lengths.unsqueeze(1)
        value = value.masked_fill(~real[:, :, None, None], 0)  # rows with an empty source attend to zeros
        return Source(key.transpose(1, 2), value.transpose(1, 2), lengths)

    def run(self, x: Sequence, state: Source, lengths: Lengths | None) -> tuple[Sequence, Source]:
        query = self._heads(x, slice(self.heads * self.head_size))
        if self.config.query_key_norm:
            query = self.query_norm(query).to(query.dtype)
        query = tap("query", query).transpose(1, 2)
        places = torch.arange(state.keys.shape[2], device=x.device)
        mask = places < state.lengths.clamp(min=1).view(-1, 1, 1, 1)
        keys, values = state.keys.to(query.dtype), state.values.to(query.dtype)
        return self.join(attend(query, keys, values, mask, self.score, dropout=self.dropped)), state

    def _heads(self, x: Tensor, rows: slice) -> Tensor:
        """Queries project the input, keys and values the source, with parts of one weight matrix."""
        if not self.config.projections:
            return x.unsqueeze(2)
        weight, bias = self.from_input.weight, self.from_input.bias
        return F.linear(x, weight[rows], None if bias is None else bias[rows]).unflatten(-1, (-1, self.head_size))
