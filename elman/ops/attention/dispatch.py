"""Attention by torch's fused kernel, or as tensors that taps can record and edit; both compute the same."""

import torch
import torch.nn.functional as F
from torch import Tensor

from elman.errors import ConfigError
from elman.ops import taps
from elman.ops.attention.scores import Score, shared_product
from elman.ops.forms import Choice, asked

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
    return _reference(query, keys, values, score, mask, bias=bias, dropout=dropout, reach=reach)


def _reference(
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


def choose(query: Tensor, score: Score) -> Choice:
    """The form that runs, with the reason; `recurrence.using` applies here too."""
    problem = _obstacle(query, score)
    wanted = asked()
    if wanted == "vendor" and problem:
        raise ConfigError(f"the vendor form of attention cannot run: {problem}")
    if wanted == "auto" and query.shape[2] == 1:
        problem = problem or "for one position plain matmuls are as fast, and equal with a recorder"
    if wanted == "reference" or problem:
        return Choice("reference", problem or "scores and weights as tensors, as requested")
    return Choice("vendor", "torch's fused attention")


def explain(query: Tensor, score: Score) -> str:
    """Which form runs and why: "vendor: torch's fused attention", "reference: a recorder is listening"."""
    return str(choose(query, score))


def _obstacle(query: Tensor, score: Score) -> str | None:
    if taps.listening():
        return "a recorder is listening"
    if score.kind == "additive":
        return "additive scores have no fused kernel"
    if query.numel() == 0:
        return "the batch is empty"
    return None


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
