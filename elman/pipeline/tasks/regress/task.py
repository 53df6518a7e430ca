"""Text regression: scores and answers in the unit of the data."""

from typing import TYPE_CHECKING, Any

import numpy as np

from elman.evaluation.regression import moments, pearson, r2, score_numbers
from elman.inspection.inspected_text import InspectedText, inspect_text_reader
from elman.pipeline.tasks import TASKS, EvaluationResult, Measure, PreparedData
from elman.pipeline.tasks.base import ResampledScore
from elman.pipeline.tasks.regress.data import NumberCorpus, TargetScale
from elman.pipeline.tasks.regress.model import REGRESSORS, Regressor
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.texts import TextTask

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


@TASKS.register("regress")
class Regress(TextTask):
    """Regress: a number for a text, such as a rating or a price."""

    models, default_model = REGRESSORS, "regressor"
    corpus_class, Target, target_file = NumberCorpus, TargetScale, "scale.json"
    metrics = ("mse", "mae", "pearson", "spearman", "r2")
    has_probabilities = False
    measures = (Measure("mse", True, "mean squared error"),)
    shown_scores = ("mse", "mae", "pearson", "spearman", "r2", "baseline_mse")
    paired_measure = table_measure = "mse"
    graded = "Squared error"

    @classmethod
    def build_smallest(cls, config: Any) -> Regressor:
        return Regressor(config, 2)

    def build(self, config: Any) -> Regressor:
        return Regressor(config, self.tokenizer.vocab_size, self.target.mean, self.target.std)

    def describe_vocabulary(self) -> Settings:
        return {**super().describe_vocabulary(), "target_mean": self.target.mean, "target_std": self.target.std}

    def run(self, model: Any, batch: Any) -> Any:
        return model.logits(batch.ragged("text"))[:, 0]

    def answer(self, output: Any, probabilities: bool) -> Settings:
        return {"number": float(self.target.in_unit(output))}

    def format(self, answer: Settings) -> str:
        return f"{answer['number']:.6g}\t{answer['text']}"

    def grade(self, answer: Settings, right: str) -> tuple[str, float]:
        return f"{answer['number']:.4g}", -((answer["number"] - float(right)) ** 2)

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        found, truth = self.outputs(
            model, prepared, recipe, split, lambda batch: self.run(model, batch), lambda batch: batch.plain("label")
        )
        found, truth = self.target.in_unit(found), self.target.in_unit(truth)
        scores = score_numbers(found, truth, baseline=self.target.mean).plain()
        scores |= {"loss": self.loss(model, prepared.stores[split], recipe)}
        units = moments(found, truth)
        others = {
            "mae": ResampledScore(np.stack([np.abs(found - truth), np.ones(len(truth))], 1), _mean),
            "pearson": ResampledScore(units, pearson),
            "r2": ResampledScore(units, r2),
        }
        return EvaluationResult(scores, "mse", (found - truth) ** 2, np.ones(len(truth)), others=others)

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        ids, tokens = self.tokens(text)
        return inspect_text_reader(model, ids, tokens, lambda _: "the number", goal="value", scores=model.in_unit)


def _mean(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1]
