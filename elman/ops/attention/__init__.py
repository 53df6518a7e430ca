"""Attention: each query reads a weighted mean of values, with weights from how well their keys fit.

`attend` is the general form, for any mask; `attend_to_past` is the causal one, `attend_both_ways` sees all.
They take torch's fused kernel where it can run, and the reference where somebody looks at the weights or the score is
not a product. `explain` says which.
"""

from elman.ops.attention.causal import answers_at_once, attend_to_past
from elman.ops.attention.dispatch import attend, choose, explain
from elman.ops.attention.reference import by_position
from elman.ops.attention.scores import Score, ScoreKind
from elman.ops.attention.two_way import attend_both_ways

__all__ = [
    "Score",
    "ScoreKind",
    "answers_at_once",
    "attend",
    "attend_both_ways",
    "attend_to_past",
    "by_position",
    "choose",
    "explain",
]
