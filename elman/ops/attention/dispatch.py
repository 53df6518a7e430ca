"""Dispatch of attention: torch's fused kernel or the reference, which compute the same."""

import torch.nn.functional as F
from torch import Tensor

from elman.errors import ConfigError
from elman.ops import taps
from elman.ops.attention import reference
from elman.ops.attention.scores import Score
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
    return reference.run(query, keys, values, score, mask, bias=bias, dropout=dropout, reach=reach)


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
