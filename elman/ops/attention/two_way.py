"""Bidirectional attention: each position attends to all real positions of its row, or to those within a window."""

import torch
from torch import Tensor

from elman.ops.attention.dispatch import attend
from elman.ops.attention.scores import Score


def attend_both_ways(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    *,
    lengths: Tensor | None = None,
    reach: int = 0,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention outputs (batch, heads, time, size).

    query (batch, heads, time, size); keys and values (batch, kv_heads, time, size), of which the first `lengths`
    (batch,) are real; with a `reach`, a position attends to distances below it, itself included. `slopes` (heads,):
    ALiBi, subtracted per step of distance to either side.
    """
    places = torch.arange(query.shape[2], device=query.device)
    distance = (places.unsqueeze(1) - places).abs()
    mask = (distance < reach).view(1, 1, *distance.shape) if 0 < reach < len(places) else None
    if lengths is not None:
        real = places < lengths.to(query.device).clamp(min=1).view(-1, 1, 1, 1)  # softmax over an empty set is NaN
        mask = real if mask is None else mask & real | distance.eq(0)  # padding attends to itself
    bias = None if slopes is None else -slopes.view(1, -1, 1, 1) * distance
    return attend(query, keys, values, mask, score, bias=bias, dropout=dropout)
