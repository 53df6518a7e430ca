"""Scores of regressors, and their race."""

from typing import TYPE_CHECKING, Any

import numpy as np

from elman.evaluation.regression import moments, pearson, r2, score_numbers
from elman.pipeline.tasks.base import EvaluationResult, Measure, PreparedData, ResampledScore
from elman.pipeline.tasks.regress.data import RegressData
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.texts import TextEvaluation, TextRace

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class RegressEvaluation(TextEvaluation):
    data: RegressData

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        scale = self.data.target
        found, truth = self.outputs(
            model, prepared, recipe, split,
            lambda batch: model.logits(batch.ragged("text"))[:, 0], lambda batch: batch.plain("label"),
        )  # fmt: skip
        found, truth = scale.in_unit(found), scale.in_unit(truth)
        scores = score_numbers(found, truth, baseline=scale.mean).plain()
        scores |= {"loss": self.loss(model, prepared.stores[split], recipe)}
        units = moments(found, truth)
        others = {
            "mae": ResampledScore(np.stack([np.abs(found - truth), np.ones(len(truth))], 1), _mean),
            "pearson": ResampledScore(units, pearson),
            "r2": ResampledScore(units, r2),
        }
        return EvaluationResult(scores, "mse", (found - truth) ** 2, np.ones(len(truth)), others=others)


def _mean(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1]


class RegressRace(TextRace):
    data: RegressData
    measures = (Measure("mse", True, "mean squared error"),)
    figures = ("mse", "mae", "pearson", "spearman", "r2", "baseline_mse")
    paired_measure = table_measure = "mse"
    graded = "Squared error"

    def grade(self, answer: Settings, right: str) -> tuple[str, float]:
        return f"{answer['number']:.4g}", -((answer["number"] - float(right)) ** 2)
