"""Causal attention with a past: each position looks back over its last `reach` positions, itself included."""

import torch
from torch import Tensor

from elman.ops.attention.dispatch import attend, choose
from elman.ops.attention.scores import Score
from elman.ops.host_sync import may_sync

BLOCK = 128  # positions at least that one call of the kernel is worth, where the reach is short


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
    """What each position reads: (batch, heads, time, size).

    query (batch, heads, time, size); keys and values (batch, kv_heads, past + time, size): those of the past lie
    before the new ones, the newest last, and a row that has `seen` (batch,) fewer than `past` positions has nothing in
    its first places. So distances are the same in all rows, and padding on the right is out of every real position's
    sight. `slopes` (heads,) is what a step of distance takes from a score.
    """
    time, past = query.shape[2], keys.shape[2] - query.shape[2]
    assert past < reach
    block = max(reach, BLOCK)
    starts = [0]
    if time > 2 * block and choose(query, score).form == "vendor":
        starts = list(range(0, time, block))  # else all pairs would be formed and most of them masked
    pieces = []
    for start, stop in zip(starts, [*starts[1:], time], strict=True):
        first = max(0, past + start - reach + 1)
        places = slice(first, past + stop)
        before = past + start - first
        mask, causal = _visible(stop - start, before, seen + start, reach)
        bias = None if slopes is None else -slopes.view(1, -1, 1, 1) * _distance(stop - start, before, query.device)
        piece = attend(
            query[:, :, start:stop],
            keys[:, :, places],
            values[:, :, places],
            mask,
            score,
            bias=bias,
            causal=causal,
            dropout=dropout,
            reach=reach,
        )
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)


def answers_at_once(numbers: Tensor) -> bool:
    """Whether its values may be asked for shortcuts: on a GPU the answer would have to be waited for."""
    return numbers.device.type == "cpu" and may_sync()


def _visible(time: int, past: int, seen: Tensor, reach: int) -> tuple[Tensor | None, bool]:
    """The mask (batch or 1, 1, time, past + time), or none and whether plain causality says it all."""
    mask = None
    if time > 1 and (past or time > reach):
        distance = _distance(time, past, seen.device)
        mask = ((distance >= 0) & (distance < reach)).view(1, 1, time, -1)
    if past and not (answers_at_once(seen) and bool((seen >= past).all())):
        filled = torch.arange(past + time, device=seen.device) >= past - seen.view(-1, 1, 1, 1)
        mask = filled if mask is None else mask & filled
    return mask, mask is None and time > 1


def _distance(time: int, past: int, device: torch.device) -> Tensor:
    """How far each key (column) lies behind each query (row)."""
    places = torch.arange(past + time, device=device)
    return places[past:].unsqueeze(1) - places
