"""Attention: each query returns a mean of values, weighted by the softmax of query-key scores.

`attend` takes any mask; `attend_to_past` is causal, `attend_both_ways` bidirectional. Torch's fused kernel
(scaled_dot_product_attention) runs where it is supported; the reference, tensors that taps can record and edit, runs
where a recorder needs the weights or the score is additive. `choose` names the form.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.ops import taps
from elman.ops.forms import Choice, asked, first_problem, only_reference
from elman.ops.host_sync import may_sync

BLOCK = 128  # positions per kernel call, at least, where the reach is short
ScoreKind = Literal["dot", "scaled", "bilinear", "additive"]


class Score(nn.Module):
    """q·k, q·k/√size, q·W·k (Luong et al., 2015) or v·tanh(W q + U k) (Bahdanau et al., 2015), per head."""

    def __init__(self, kind: ScoreKind, heads: int = 1, size: int = 1):
        super().__init__()
        self.kind = kind
        if kind == "bilinear":
            self.between = _weight(heads, size, size, bound=1 / size)
        if kind == "additive":
            self.from_query = _weight(heads, size, size, bound=size**-0.5)
            self.from_key = _weight(heads, size, size, bound=size**-0.5)
            self.vector = _weight(heads, size, 1, bound=size**-0.5)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """The definition: query (batch, heads, time, size) and keys (batch, kv_heads, past, size) to scores
        (batch, heads, time, past)."""
        if self.kind == "additive":
            keys = keys.repeat_interleave(query.shape[1] // keys.shape[1], 1)
            mixed = (query @ self.from_query).unsqueeze(3) + (keys @ self.from_key).unsqueeze(2)
            return (torch.tanh(mixed) @ self.vector.unsqueeze(1)).squeeze(-1)
        query, scale = self.as_product(query)
        return shared_product(query, keys.transpose(-1, -2)) * scale

    def as_product(self, query: Tensor) -> tuple[Tensor, float]:
        """A query and a scale with which the plain dot product gives these scores; not for additive ones."""
        assert self.kind != "additive"
        if self.kind == "bilinear":
            query = query @ self.between
        return query, query.shape[-1] ** -0.5 if self.kind == "scaled" else 1.0


def shared_product(left: Tensor, right: Tensor) -> Tensor:
    """Grouped matmul: each head of `right` is shared by several of `left`, without a copy."""
    batch, heads, time, _ = left.shape
    groups = left.reshape(batch, right.shape[1], -1, left.shape[-1]) if heads != right.shape[1] else left
    return (groups @ right).view(batch, heads, time, right.shape[-1])


def _weight(*shape: int, bound: float) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


PLAIN = {"dot": Score("dot"), "scaled": Score("scaled")}


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    score: Score | str = "scaled",
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    reach: int = 0,
) -> Tensor:
    """Attention outputs (batch, heads, time, size).

    query (batch, heads, time, size); keys and values (batch, kv_heads, past, size), each shared by heads / kv_heads
    heads (grouped-query attention); mask (batch or 1, heads or 1, time, past), true where a query attends; a fully
    masked query returns zeros; `bias` of the mask's shape is added to the scores. `causal` replaces the mask where keys
    and queries have the same positions. Taps `scores` and `weights` are (batch, time, heads, past), or with a `reach`
    the last `reach` positions up to the query's own: (batch, time, heads, reach).
    """
    score = PLAIN[score] if isinstance(score, str) else score
    if choose(query, score).form == "vendor":
        query, scale = score.as_product(query)
        if bias is not None:
            visible = _lower(query, keys) if causal else mask
            bias = bias.to(query.dtype)
            mask, causal = bias if visible is None else bias.masked_fill(~visible, float("-inf")), False
        return F.scaled_dot_product_attention(
            query, keys, values, mask, dropout, causal, scale=scale, enable_gqa=query.shape[1] != keys.shape[1]
        )
    mask = _lower(query, keys) if causal else mask
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


def choose(query: Tensor, score: Score) -> Choice:
    """The form that runs, with the reason; `recurrence.using` applies here too."""
    problems = {
        "additive scores have no fused kernel": score.kind == "additive",
        "the batch is empty": query.numel() == 0,
    }
    problem, wanted = only_reference() or first_problem(problems), asked()
    if wanted == "vendor" and problem:
        raise ConfigError(f"the vendor form of attention cannot run: {problem}")
    if wanted == "auto" and query.shape[2] == 1:
        problem = problem or "for one position plain matmuls are as fast, and equal with a recorder"
    if wanted == "reference" or problem:
        return Choice("reference", problem or "scores and weights as tensors, as requested")
    return Choice("vendor", "torch's fused attention")


def _lower(query: Tensor, keys: Tensor) -> Tensor:
    return query.new_ones(query.shape[2], keys.shape[2]).tril().bool()


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
