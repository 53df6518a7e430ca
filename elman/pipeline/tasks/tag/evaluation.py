"""Scores of taggers: accuracy over words, F1 over entities where tags mark some; and their race."""

from typing import TYPE_CHECKING, Any

import numpy as np

from elman.evaluation.inference_mode import inference_mode
from elman.evaluation.tagging import entity_f1, score_tags
from elman.pipeline.tasks.base import EvaluationResult, Measure, PreparedData, ResampledScore
from elman.pipeline.tasks.examples import ExampleEvaluation, ExampleRace
from elman.pipeline.tasks.settings import TRANSFORMER, Settings
from elman.pipeline.tasks.tag.data import TagData

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

OF_ENTITIES = ("precision", "recall", "f1")


class TagEvaluation(ExampleEvaluation):
    data: TagData

    def unavailable_metrics(self, model: Any, prepared: PreparedData) -> dict[str, str]:
        return {} if self.data.tags.marks_entities else dict.fromkeys(OF_ENTITIES, "its tags mark no entities")

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        gold: list[tuple[str, ...]] = []
        found: list[tuple[str, ...]] = []
        store, entities = prepared.stores[split], self.data.tags.marks_entities
        with inference_mode(model):
            for batch in self.data.batches(model, store, recipe):
                true = batch.ragged("tags")
                gold += self.data.decode(true.values, true.lengths)
                found += self.data.decode(*model.best_tags(batch))
        order = np.argsort(self.data.order(store, recipe))
        gold, found = [gold[place] for place in order], [found[place] for place in order]
        score = score_tags(gold, found)
        scores: Settings = {"accuracy": score.accuracy, "accuracy_interval": score.intervals["accuracy"]}
        if entities:
            for name in OF_ENTITIES:
                scores |= {name: getattr(score.entities, name), f"{name}_interval": score.intervals.get(name)}
            keys = ("type", "precision", "recall", "f1", "found")
            scores["per_type"] = [dict(zip(keys, line, strict=True)) for line in score.table()[1:]]
        scores |= {"loss": self.loss(model, store, recipe), "sentences": score.sentences, "words": score.words}
        hits = [[float(a == b) for a, b in zip(*pair, strict=True)] for pair in zip(gold, found, strict=True)]
        right, sizes = np.array([sum(row) for row in hits]), np.array([len(row) for row in hits], dtype=np.float64)
        others = {"f1": ResampledScore(np.array(score.by_sentence), entity_f1)} if entities else {}
        positions = np.array([hit for row in hits for hit in row])
        return EvaluationResult(scores, "accuracy", right, sizes, others=others, positions=positions)


class TagRace(ExampleRace):
    unit = "words"
    entrants = ("rnn", "gru", "lstm", "convolution", "attention")
    measures = (
        Measure("f1", False, "F1 of entities", percent=True),
        Measure("accuracy", False, "of the tags right", percent=True),
    )
    figures = ("loss", "accuracy", "f1")
    usage_note = (
        "A tagger generates no text and has no recurrent state, because it uses both sides of each word; the speed is "
        "in sentences per second, one at a time."
    )

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        return {"type": TRANSFORMER} if name == "attention" else None
