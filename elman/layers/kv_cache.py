"""The KV cache of attention, as an immutable value and as a ring buffer."""

from typing import NamedTuple

import torch
from torch import Tensor

from elman.ops.attention import may_read_values


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

        If not everything visible fits, its size is a power of two, so that texts of similar length share one CUDA
        graph.
        """
        batch, _, past, _ = self.keys.shape
        needed = int(self.seen.max() if batch else 0) + more
        places = min(past + 1, 1 << (needed - 1).bit_length())
        parts = []
        for part in (self.keys, self.values):
            buffer = part.new_zeros(*part.shape[:2], places, part.shape[3])
            buffer[:, :, : places - 1] = part[:, :, past - places + 1 :]
            parts.append(buffer)
        return Ring(parts[0], parts[1], self.seen.clone(), torch.full_like(self.seen, places - 1))


class Ring(NamedTuple):
    """KV cache of the last positions, at the same index in all rows, updated in place: a step overwrites the oldest.

    Other states are immutable values, so each step creates a new one, which suits training, branching and storing. A
    CUDA graph needs fixed addresses, and long generation should not copy the cache for every token.
    """

    keys: Tensor  # (batch, kv_heads, places, head_size)
    values: Tensor
    seen: Tensor  # (batch,): positions since the start
    place: Tensor  # (batch,): slot of the next position, equal in all rows

    def write(self, key: Tensor, value: Tensor) -> None:
        """Appends one position (batch, kv_heads, 1, head_size)."""
        for buffer, new in ((self.keys, key), (self.values, value)):
            buffer.index_copy_(2, self.place[:1], new.to(buffer.dtype))
        self.seen.add_(1)
        self.place.add_(1).remainder_(self.keys.shape[2])

    def distances(self) -> Tensor:
        """Distance of each slot (places,) from the next position, whose own slot has distance 0."""
        places = self.keys.shape[2]
        return (self.place[:1] - torch.arange(places, device=self.place.device)) % places
