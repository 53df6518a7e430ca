"""Judging models: likelihood, scores of single texts, distance to the truth, intervals."""

from elman.evaluation.config import EvaluationConfig
from elman.evaluation.languages import Agreement, Comparison, Excess, agreement, compare, excess
from elman.evaluation.likelihood import Likelihood, evaluate
from elman.evaluation.score import Score, score_texts
from elman.evaluation.significance import bootstrap_interval

__all__ = [
    "Agreement",
    "Comparison",
    "EvaluationConfig",
    "Excess",
    "Likelihood",
    "Score",
    "agreement",
    "bootstrap_interval",
    "compare",
    "evaluate",
    "excess",
    "score_texts",
]
