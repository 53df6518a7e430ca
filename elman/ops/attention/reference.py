"""The reference form of attention: scores, softmax and weighted sum as tensors, which taps can record and edit."""

import torch
import torch.nn.functional as F
from torch import Tensor

from elman.ops import taps
from elman.ops.attention.scores import Score, shared_product


def run(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    mask: Tensor | None,
    *,
    bias: Tensor | None,
    dropout: float,
    reach: int,
) -> Tensor:
    """Layout (batch, heads, time or past, size); with a `reach`, taps show only so many positions."""
    scores = score(query, keys)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = _tap("scores", scores, reach, -torch.inf).softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0)  # a fully masked query returns zeros
    weights = F.dropout(_tap("weights", weights, reach, 0.0), dropout)
    return shared_product(weights.to(values.dtype), values)


def to_band(square: Tensor, reach: int, fill: float) -> Tensor:
    """The band of a matrix: (time, past + time) to (time, reach). The last column is the diagonal, the one before it
    the previous position; positions before the first are `fill`."""
    time, slots = square.shape[-2:]
    square = F.pad(square, (reach - 1 + time - slots, 0), value=fill)
    # with one more element per row, each row is shifted by one against the last: diagonals become columns
    flat = F.pad(square.flatten(-2), (0, time))
    return flat.unflatten(-1, (time, reach + time))[..., :reach]


def from_band(band: Tensor, slots: int, fill: float) -> Tensor:
    """The inverse of `to_band`, with `fill` outside of the band."""
    time, reach = band.shape[-2:]
    whole = reach - 1 + time
    flat = F.pad(band, (0, time), value=fill).flatten(-2)[..., : time * whole]
    return flat.unflatten(-1, (time, whole))[..., whole - slots :]


def by_position(band: Tensor) -> Tensor:
    """Recorded weights (batch, time, heads, reach) of a sequence from its start as (batch, heads, time, time)."""
    time, reach = band.shape[1], band.shape[-1]
    wide = F.pad(band, (max(0, time - reach), 0)).transpose(1, 2)
    return from_band(wide, time, 0.0)


def _tap(name: str, value: Tensor, reach: int, fill: float) -> Tensor:
    if not taps.listening():
        return value
    if not reach:
        return taps.tap(name, value.transpose(1, 2)).transpose(1, 2)
    shown = to_band(value, reach, fill).transpose(1, 2)
    return from_band(taps.tap(name, shown).transpose(1, 2), value.shape[-1], fill)
