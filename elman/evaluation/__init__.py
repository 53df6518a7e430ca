"""Judging models: likelihood, scores of single texts, distance to the truth, intervals."""

from elman.evaluation.classification import Classification, MultiLabel, PerLabel, score_label_sets, score_labels
from elman.evaluation.config import EvaluationConfig
from elman.evaluation.languages import Agreement, Comparison, Excess, agreement, compare, excess
from elman.evaluation.likelihood import Likelihood, evaluate
from elman.evaluation.score import Score, score_texts
from elman.evaluation.significance import bootstrap_interval, resample_interval

__all__ = [
    "Agreement",
    "Classification",
    "Comparison",
    "EvaluationConfig",
    "Excess",
    "Likelihood",
    "MultiLabel",
    "PerLabel",
    "Score",
    "agreement",
    "bootstrap_interval",
    "compare",
    "evaluate",
    "excess",
    "resample_interval",
    "score_label_sets",
    "score_labels",
    "score_texts",
]
