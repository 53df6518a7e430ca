"""The task of tagging, and its settings."""

from collections.abc import Mapping
from typing import Any

from elman.batches.tagging import WordsConfig
from elman.config import Config
from elman.corpus import TaggedConfig
from elman.models import TAGGERS, Tagger
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.base import Task, deferred
from elman.pipeline.tasks.settings import Settings, TaskSettings, bidirectional, pick
from elman.pipeline.tasks.tag.data import TagData, TagModels
from elman.pipeline.tasks.tag.prediction import TagPrediction
from elman.registry import Registry


class _Words:
    """Words with their characters: what a tagger reads."""

    Config = WordsConfig


TABLES: Registry[Any] = Registry("tokenizer")
TABLES.register("words")(_Words)
# Words come with their characters, in a width of their own: a first layer brings it to that of the others.
TRANSFORMER_PATTERN: list[Settings] = [
    {"convolution": {"kernel_size": 1, "activation": "linear"}},
    {"two-way-attention": {"num_heads": 4, "positions": "rotary"}},
    {"feedforward": {}},
]


class TagSettings(TaskSettings):
    Data, models, default_model = TaggedConfig, TAGGERS, "tagger"
    metrics = ("accuracy", "precision", "recall", "f1")
    starts_from = True

    def complete(self, settings: Settings) -> Settings:
        return {"tokenizer": "words", **super().complete(settings)}

    def columns(self, parts: list[int | str]) -> Settings:
        if len(parts) == 2:
            return {"data.columns.word": parts[0], "data.columns.tag": parts[1]}
        return super().columns(parts)

    def tokenizer(self, settings: Any) -> Config:
        return pick(TABLES, "tokenizer", {"type": settings} if isinstance(settings, str) else settings)

    def of_layer(self, name: str, settings: Mapping[str, Any]) -> Settings:
        """A causal layer is made bidirectional: a tag depends on both sides of its word."""
        return bidirectional(super().of_layer(name, settings))

    def transformer(self, settings: Settings) -> Settings:
        return {"pattern": TRANSFORMER_PATTERN, **settings, "type": self.default_model}

    def starting_body(self, run: str, stored: Settings, asked: Mapping[str, Any]) -> Settings:
        """Without character vectors, which would make the first layer wider."""
        body = super().starting_body(run, stored, asked)
        return {**body, "embedding_size": body["embedding_size"] or body["hidden_size"], "characters": None}

    def build_smallest(self, config: Any) -> Tagger:
        return Tagger(config, 2, 3, 2)


@TASKS.register("tag")
class Tag(Task):
    """Tag: a tag for each word of a sentence."""

    settings = TagSettings()
    Data, Models, Prediction = TagData, TagModels, TagPrediction
    Evaluation = deferred("elman.pipeline.tasks.tag.evaluation:TagEvaluation")
    Inspection = deferred("elman.pipeline.tasks.tag.prediction:TagInspection")
    Race = deferred("elman.pipeline.tasks.tag.evaluation:TagRace")
