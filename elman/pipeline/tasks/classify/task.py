"""Classification: labels, classifiers, scores and answers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from elman.batches import ExampleStore
from elman.corpus import LabelledCorpus, LabelSet
from elman.evaluation.calibration import fit_temperature
from elman.evaluation.classification import (
    label_counts,
    macro_f1,
    macro_f1_of_all,
    never_answered,
    score_label_sets,
    score_labels,
)
from elman.inspection.inspected_text import InspectedText, inspect_classifier
from elman.layers.base import at_least_float32
from elman.models import CLASSIFIERS, Classifier
from elman.pipeline.tasks import TASKS, EvaluationResult, Measure, PreparedData
from elman.pipeline.tasks.base import ResampledScore
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.texts import TextTask

if TYPE_CHECKING:
    from elman.compiler.cpu.standalone import StepModel
    from elman.pipeline.recipe import Recipe

THRESHOLD = 0.5  # of a label's probability, where a text can have several labels


@TASKS.register("classify")
class Classify(TextTask):
    """Classify: which label, or which labels, a text has."""

    models, default_model = CLASSIFIERS, "classifier"
    Target, saved_files = LabelSet, ("tokenizer.json", "labels.json")
    metrics = ("accuracy", "micro_f1", "macro_f1", "calibration_error")
    measures = (Measure("accuracy", False, "of the labels right", percent=True),)
    shown_scores = ("loss", "accuracy", "baseline_accuracy", "macro_f1")
    can_calibrate = can_abstain = True
    endpoint, gives_probabilities = "classify", True
    cost_note = f"A classifier generates no text. {TextTask.cost_note}"

    @property
    def labels(self) -> LabelSet:
        return self.target

    @classmethod
    def build_smallest(cls, config: Any) -> Classifier:
        return Classifier(config, 2, 2)

    def build(self, config: Any) -> Classifier:
        labels = self.labels
        weights = labels.weights(config.class_weights)
        return Classifier(config, self.tokenizer.vocab_size, len(labels), labels.several, weights)

    def step_model(self, model: Any) -> "StepModel":
        kind: Any = "several_labels" if self.labels.several else "one_label"
        return replace(super().step_model(model), kind=kind, labels=tuple(self.labels.names))

    def questions(self, corpus: LabelledCorpus, split: Any) -> Iterator[tuple[str, list[str]]]:
        for text in corpus.texts(split):
            yield text.text, [", ".join(name for name in self.labels.names if name in text.labels)]

    def answer_parts(self, answer: Settings) -> list[str]:
        return [", ".join(answer["labels"]) if self.labels.several else answer["label"] or ""]

    def describe_target(self) -> Any:
        return self.labels.names

    def describe_vocabulary(self) -> Settings:
        return {**super().describe_vocabulary(), "labels": list(self.labels.names)}

    def class_counts(self, store: ExampleStore) -> dict[str, int]:
        size, several = len(self.labels), self.labels.several
        sets = store.ragged["label"][0].reshape(-1, size) if several else None
        counts = np.bincount(store.columns["label"], minlength=size) if sets is None else sets.sum(axis=0)
        return dict(zip(self.labels.names, counts.tolist(), strict=True))

    def unavailable_metrics(self, model: Any, prepared: PreparedData) -> dict[str, str]:
        return {} if self.labels.several else {"micro_f1": "with one label for each text it is the accuracy"}

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        several, names = self.labels.several, self.labels.names
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
        others = {"macro_f1": ResampledScore(label_counts(answers, right), macro_f1_of_all if several else macro_f1)}
        true, answered = (dict(zip(names, one.sum(axis=0).tolist(), strict=True)) for one in (right, answers))
        unweighted = recipe.model.class_weights == "none"  # type: ignore[attr-defined]
        remedy = "; --model.class_weights balanced weights rare labels up" if unweighted else ""
        notes = tuple(note + remedy for note in never_answered(true, answered))
        return EvaluationResult(scores, "accuracy", hits, np.ones(len(hits)), others=others, notes=notes)

    def calibrate(self, model: Any, prepared: PreparedData, recipe: "Recipe") -> Settings:
        def scores() -> Settings:
            found = self.evaluate(model, prepared, recipe, "valid").scores
            return {name: found[name] for name in ("loss", "calibration_error")}

        several = self.labels.several
        logits, truth = self.outputs(
            model, prepared, recipe, "valid", lambda batch: at_least_float32(model.logits(batch.ragged("text"))),
            lambda batch: batch.ragged("label").values if several else batch.plain("label"),
        )  # fmt: skip
        before, temperature = scores(), fit_temperature(logits, truth)
        model.divide_logits(temperature)
        return {"temperature": temperature, "before": before, "after": scores()}

    def abstain(self, answer: Settings, least: float) -> Settings:
        chances = answer["probabilities"]
        if self.labels.several:
            return {**answer, "labels": [name for name in answer["labels"] if chances[name] >= least]}
        unsure = answer["label"] is not None and chances[answer["label"]] < least
        return {**answer, "label": None} if unsure else answer

    def run(self, model: Any, batch: Any) -> Any:
        return model.probabilities(batch)

    def answer(self, output: list[float], probabilities: bool) -> Settings:
        names = self.labels.names
        if self.labels.several:
            above = [name for name, chance in zip(names, output, strict=True) if chance > THRESHOLD]
            answer: Settings = {"labels": above}
        else:
            most = max(output)
            answer = {"label": names[output.index(most)], "probability": most}
        if probabilities:
            answer["probabilities"] = dict(zip(names, output, strict=True))
        return answer

    def empty_answer(self, probabilities: bool) -> Settings:
        answer: Settings = {"labels": []} if self.labels.several else {"label": None, "probability": None}
        return {**answer, "probabilities": dict.fromkeys(self.labels.names)} if probabilities else answer

    def format(self, answer: Settings) -> str:
        parts = self.answer_parts(answer)
        if "probabilities" in answer:
            parts += [f"{name}={chance:.4f}" for name, chance in answer["probabilities"].items() if chance is not None]
        return "\t".join([*parts, answer["text"]])

    def served(self, answer: Settings) -> Settings:
        """In the form of vLLM; of several labels, `label` is the likeliest, `labels` are those above the threshold."""
        found = super().served(answer)
        chances = found.pop("probabilities", None)
        if chances is None:
            return found
        probs = list(chances.values())
        if self.labels.several:
            found["label"] = None if None in probs else max(chances, key=chances.__getitem__)
        return found | {"probs": probs, "num_classes": len(probs)}

    def served_facts(self) -> Settings:
        return {"classes": list(self.labels.names)}

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        return inspect_classifier(model, *self.tokens(text), self.labels.names)
