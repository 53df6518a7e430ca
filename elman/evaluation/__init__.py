"""Judging models: likelihood, scores of single texts, distance to the truth, intervals."""

from elman.evaluation.config import EvaluationConfig
from elman.evaluation.languages import Agreement, Comparison, Excess, agreement, compare, excess
from elman.evaluation.likelihood import Likelihood, evaluate
from elman.evaluation.score import Score, score_texts
from elman.evaluation.significance import bootstrap_interval
from elman.evaluation.tagging import TaggingScore, entities, judge_tags

__all__ = [
    "Agreement",
    "Comparison",
    "EvaluationConfig",
    "Excess",
    "Likelihood",
    "Score",
    "TaggingScore",
    "agreement",
    "bootstrap_interval",
    "compare",
    "entities",
    "evaluate",
    "excess",
    "judge_tags",
    "score_texts",
]
