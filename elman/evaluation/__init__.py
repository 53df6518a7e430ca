"""Judging models: likelihood, scores of single texts, distance to the truth, intervals."""

from elman.evaluation.config import EvaluationConfig
from elman.evaluation.languages import Agreement, Comparison, Excess, agreement, compare, excess
from elman.evaluation.likelihood import Likelihood, evaluate
from elman.evaluation.score import Score, score_texts
from elman.evaluation.significance import bootstrap_interval
from elman.evaluation.translation import Measure, edit_distance, judge_translations

__all__ = [
    "Agreement",
    "Comparison",
    "EvaluationConfig",
    "Excess",
    "Likelihood",
    "Measure",
    "Score",
    "agreement",
    "bootstrap_interval",
    "compare",
    "edit_distance",
    "evaluate",
    "excess",
    "judge_translations",
    "score_texts",
]
