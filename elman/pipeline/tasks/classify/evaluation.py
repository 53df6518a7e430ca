"""Scores of classifiers, and their race."""

from typing import TYPE_CHECKING, Any

import numpy as np

from elman.evaluation.classification import label_counts, macro_f1, score_label_sets, score_labels
from elman.pipeline.tasks.base import EvaluationResult, Measure, PreparedData, ResampledScore
from elman.pipeline.tasks.classify.data import ClassifyData
from elman.pipeline.tasks.classify.prediction import THRESHOLD
from elman.pipeline.tasks.texts import TextEvaluation, TextRace

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class ClassifyEvaluation(TextEvaluation):
    data: ClassifyData

    def unavailable_metrics(self, model: Any, prepared: PreparedData) -> dict[str, str]:
        return {} if self.data.labels.several else {"micro_f1": "with one label for each text it is the accuracy"}

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        several, names = self.data.labels.several, self.data.labels.names
        probabilities, truth = self.outputs(
            model, prepared, recipe, split,
            model.probabilities, lambda batch: batch.ragged("label").values if several else batch.plain("label"),
        )  # fmt: skip
        if several:
            scores = score_label_sets(probabilities, truth, names, THRESHOLD).plain()
            answers, right = probabilities > THRESHOLD, truth.astype(bool)
        else:
            scores = score_labels(probabilities, truth, names).plain()
            answers, right = (one[:, None] == np.arange(len(names)) for one in (probabilities.argmax(axis=1), truth))
        hits = (answers == right).all(axis=1).astype(np.float64)
        others = {"macro_f1": ResampledScore(label_counts(answers, right), macro_f1)}
        return EvaluationResult(scores, "accuracy", hits, np.ones(len(hits)), others=others)


class ClassifyRace(TextRace):
    measures = (Measure("accuracy", False, "of the labels right", percent=True),)
    figures = ("loss", "accuracy", "macro_f1")
    usage_note = f"A classifier generates no text. {TextRace.usage_note}"
