"""Attention: each query returns a mean of values, weighted by the softmax of query-key scores.

`attend` takes any mask; `attend_to_past` is causal, `attend_both_ways` bidirectional. Torch's fused kernel
(scaled_dot_product_attention) runs where it is supported; the reference runs where a recorder needs the weights or the
score is additive. `explain` names the form.
"""

from elman.ops.attention.dispatch import Score, ScoreKind, attend, by_position, choose, explain
from elman.ops.attention.patterns import attend_both_ways, attend_to_past, may_read_values

__all__ = [
    "Score",
    "ScoreKind",
    "attend",
    "attend_both_ways",
    "attend_to_past",
    "by_position",
    "choose",
    "explain",
    "may_read_values",
]
