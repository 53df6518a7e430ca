"""Scores of language models: likelihood, and for a synthetic language the distance to its entropy."""

from typing import TYPE_CHECKING, Any

import numpy as np

from elman.evaluation.likelihood import Likelihood, evaluate
from elman.evaluation.synthetic import compare, excess
from elman.generation import generate
from elman.jsonable import jsonable
from elman.models import is_masked, prediction_of
from elman.pipeline.tasks.base import Evaluation, EvaluationResult, PreparedData
from elman.pipeline.tasks.language_model.data import LanguageData
from elman.pipeline.tasks.settings import Settings
from elman.training.reports import Validation, perplexity

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

SAMPLES = 5
MIN_CASES = 20  # below which a share says little


class LanguageEvaluation(Evaluation):
    data: LanguageData

    def facts(self, model: Any) -> Settings:
        return {"prediction": prediction_of(model)}

    def validate(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> Validation:
        batches, context = self.data.evaluation_batches(prepared, "valid", recipe, quick=True)
        loss = evaluate(model, batches, prepared.stores["valid"].facts, context, quick=True).loss
        return Validation(loss, loss, {"perplexity": perplexity(loss)})

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        batches, context = self.data.evaluation_batches(prepared, split, recipe)
        likelihood = evaluate(model, batches, prepared.stores[split].facts, context)
        scores = likelihood.plain()
        if prepared.corpus.language is not None:
            scores["language"] = self._synthetic_scores(model, prepared, split, likelihood)
        return EvaluationResult(scores, "loss", np.zeros(0), np.zeros(0))

    def _synthetic_scores(self, model: Any, prepared: PreparedData, split: Any, likelihood: Likelihood) -> Settings:
        """Excess over the entropy of the language, for causal models; with a token for each word also agreement."""
        language: Any = prepared.corpus.language
        documents = prepared.corpus.documents(split)
        if self.data.tokenizer.name != "word":
            found = excess(likelihood, language, documents) if likelihood.kind == "likelihood" else None
            return {"excess": None if found is None else jsonable(found)}
        compared = compare(model, self.data.tokenizer, language, documents).plain()
        cases = [one for one in (compared["agreement"] or {}).get("by_distance", []) if one["words"] >= MIN_CASES]
        return {**compared, "worst_agreement": min((one["accuracy"] for one in cases), default=None)}

    def samples(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> list[str]:
        if is_masked(model):
            return []
        settings = recipe.generation.model_copy(update={"seed": recipe.seed})
        return [sample.text for sample in generate(model, self.data.tokenizer, [""] * SAMPLES, settings)]
