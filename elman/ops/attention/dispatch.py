"""Which form of attention runs, and why; both give the same."""

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
    """What each query reads: (batch, heads, time, size).

    query (batch, heads, time, size); keys and values (batch, kv_heads, past, size), each shared by heads / kv_heads
    heads; mask (batch or 1, heads or 1, time, past), true where a query may look: one that may look nowhere reads
    zeros; bias of the same shape is added to the scores. `causal`, instead of a mask, where keys and queries have the
    same positions. Taps `scores` and `weights` are (batch, time, heads, past), or with a `reach` only the last `reach`
    positions up to the query's own: (batch, time, heads, reach).
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
    """The form that runs, with the reason. `recurrence.using` asks for a form of this operation too."""
    problem = _obstacle(query, score)
    wanted = asked()
    if wanted == "vendor" and problem:
        raise ConfigError(f"the vendor form of attention cannot run: {problem}")
    if wanted == "auto" and query.shape[2] == 1:
        problem = problem or "for one position the plain products are as fast, and the same with a recorder"
    if wanted == "reference" or problem:
        return Choice("reference", problem or "scores and weights as tensors, as asked")
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
