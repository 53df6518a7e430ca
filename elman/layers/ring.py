"""KV cache as a ring buffer, updated in place: each step overwrites the oldest position.

Other states are immutable values, so each step creates a new one, which suits training, branching and storing. A CUDA
graph needs fixed addresses, and long generation should not copy the cache for every token.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Ring(NamedTuple):
    """KV cache of the last positions, at the same index in all rows. Unlike other states, steps modify it."""

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


def ring_of(keys: Tensor, values: Tensor, seen: Tensor, more: int) -> Ring:
    """A ring buffer from the last positions (newest last), with room for `more`.

    If not everything visible fits, its size is a power of two, so that texts of similar length share one CUDA graph.
    """
    batch, _, past, _ = keys.shape
    needed = int(seen.max() if batch else 0) + more
    places = min(past + 1, 1 << (needed - 1).bit_length())
    parts = []
    for part in (keys, values):
        buffer = part.new_zeros(*part.shape[:2], places, part.shape[3])
        buffer[:, :, : places - 1] = part[:, :, past - places + 1 :]
        parts.append(buffer)
    return Ring(parts[0], parts[1], seen.clone(), torch.full_like(seen, places - 1))
