"""Attention's past in memory that stays where it is: each step writes over what has just fallen out of sight.

A plain state is a value, so each step builds the next one anew. That is right for training, branching and storing; a
captured graph needs the same addresses at each step, and a long text would copy its whole past for every token.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Ring(NamedTuple):
    """The last positions of each row, at the same places in all rows. A step changes it, unlike any other state."""

    keys: Tensor  # (batch, kv_heads, places, head_size)
    values: Tensor
    seen: Tensor  # (batch,): positions since the start
    place: Tensor  # (batch,): where the next position goes, one number for all rows

    def write(self, key: Tensor, value: Tensor) -> None:
        """One position more (batch, kv_heads, 1, head_size)."""
        for whole, new in ((self.keys, key), (self.values, value)):
            whole.index_copy_(2, self.place[:1], new.to(whole.dtype))
        self.seen.add_(1)
        self.place.add_(1).remainder_(self.keys.shape[2])

    def distances(self) -> Tensor:
        """How far each place (places,) lies behind the one that comes next, which itself is at 0."""
        places = self.keys.shape[2]
        return (self.place[:1] - torch.arange(places, device=self.place.device)) % places


def ring_of(keys: Tensor, values: Tensor, seen: Tensor, more: int) -> Ring:
    """Of the last positions, the newest in the last place, with room for `more` of them.

    Where all that can be seen does not fit, places are a power of two: texts of similar length then share one graph.
    """
    batch, _, past, _ = keys.shape
    needed = int(seen.max() if batch else 0) + more
    places = min(past + 1, 1 << (needed - 1).bit_length())
    parts = []
    for part in (keys, values):
        whole = part.new_zeros(*part.shape[:2], places, part.shape[3])
        whole[:, :, : places - 1] = part[:, :, past - places + 1 :]
        parts.append(whole)
    return Ring(parts[0], parts[1], seen.clone(), torch.full_like(seen, places - 1))
