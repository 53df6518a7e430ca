"""The two patterns of self-attention: causal, with a key/value cache, and bidirectional."""

import torch
from torch import Tensor

from elman.ops.attention.dispatch import Score, attend, choose
from elman.ops.host_sync import may_sync

BLOCK = 128  # positions per kernel call, at least, where the reach is short


def attend_to_past(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    *,
    seen: Tensor,
    reach: int,
    slopes: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal attention (batch, heads, time, size): each position attends to its last `reach` ones, itself included.

    query (batch, heads, time, size); keys and values (batch, kv_heads, past + time, size), the cached ones first, right
    aligned: a row that has `seen` (batch,) fewer than `past` positions has empty slots at the beginning. So distances
    are the same in all rows, and right padding is masked by causality. `slopes` (heads,): ALiBi, subtracted per step of
    distance.
    """
    time, past = query.shape[2], keys.shape[2] - query.shape[2]
    assert past < reach
    block = max(reach, BLOCK)
    starts = [0]
    if time > 2 * block and choose(query, score).form == "vendor":
        starts = list(range(0, time, block))  # else all pairs would be computed, and most of them masked
    pieces = []
    for start, stop in zip(starts, [*starts[1:], time], strict=True):
        first = max(0, past + start - reach + 1)
        positions = slice(first, past + stop)
        before = past + start - first
        mask, causal = _visible(stop - start, before, seen + start, reach)
        bias = None if slopes is None else -slopes.view(1, -1, 1, 1) * _distance(stop - start, before, query.device)
        given = query[:, :, start:stop], keys[:, :, positions], values[:, :, positions]
        pieces.append(attend(*given, mask, score, bias=bias, causal=causal, dropout=dropout, reach=reach))
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)


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
    """Bidirectional attention (batch, heads, time, size): each position attends to all real ones of its row.

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


def may_read_values(x: Tensor) -> bool:
    """Whether values may be read for a shortcut: not on a GPU, where that synchronises, nor in a trace."""
    return x.device.type == "cpu" and may_sync()


def _visible(time: int, past: int, seen: Tensor, reach: int) -> tuple[Tensor | None, bool]:
    """The mask (batch or 1, 1, time, past + time) or None, and whether the kernel's causal flag is enough."""
    mask = None
    if time > 1 and (past or time > reach):
        distance = _distance(time, past, seen.device)
        mask = ((distance >= 0) & (distance < reach)).view(1, 1, time, -1)
    if past and not (may_read_values(seen) and bool((seen >= past).all())):
        filled = torch.arange(past + time, device=seen.device) >= past - seen.view(-1, 1, 1, 1)
        mask = filled if mask is None else mask & filled
    return mask, mask is None and time > 1


def _distance(time: int, past: int, device: torch.device) -> Tensor:
    """The distance of each key (column) behind each query (row)."""
    positions = torch.arange(past + time, device=device)
    return positions[past:].unsqueeze(1) - positions
