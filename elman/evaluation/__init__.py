<<<<<<< HEAD
"""Judging models: likelihood, scores of single texts, distance to the truth, intervals."""

from elman.evaluation.config import EvaluationConfig
from elman.evaluation.languages import agreement, compare, excess
from elman.evaluation.likelihood import Likelihood, evaluate
from elman.evaluation.score import Score, score_texts
from elman.evaluation.significance import bootstrap_interval

__all__ = [
    "EvaluationConfig",
    "Likelihood",
    "Score",
=======
"""How good a model is: likelihood, distance to the true distribution, and how much of it is luck."""

from elman.evaluation.languages import Agreement, Comparison, Excess, agreement, compare, excess
from elman.evaluation.likelihood import Likelihood, evaluate
from elman.evaluation.significance import bootstrap_interval

__all__ = [
    "Agreement",
    "Comparison",
    "Excess",
    "Likelihood",
>>>>>>> generation
    "agreement",
    "bootstrap_interval",
    "compare",
    "evaluate",
    "excess",
<<<<<<< HEAD
    "score_texts",
=======
>>>>>>> generation
]
