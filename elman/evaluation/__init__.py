"""How good a model is: likelihood, distance to the true distribution, and how much of it is luck."""

from elman.evaluation.languages import Agreement, Comparison, Excess, agreement, compare, excess
from elman.evaluation.likelihood import Likelihood, evaluate
from elman.evaluation.significance import bootstrap_interval

__all__ = [
    "Agreement",
    "Comparison",
    "Excess",
    "Likelihood",
    "agreement",
    "bootstrap_interval",
    "compare",
    "evaluate",
    "excess",
]
