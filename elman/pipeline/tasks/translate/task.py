"""The task of translation, and its settings."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, SerializeAsAny

from elman.config import Config
from elman.corpus import PairsConfig
from elman.errors import ConfigError
from elman.layers import LAYERS
from elman.models import TRANSLATORS
from elman.models.encoder_decoder.config import parallel_settings
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.base import Task, deferred
from elman.pipeline.tasks.settings import Settings, TaskSettings, pick
from elman.pipeline.tasks.translate.data import TranslateData, TranslateModels
from elman.pipeline.tasks.translate.prediction import TranslatePrediction
from elman.tokenizers import TOKENIZERS

TRANSFORMER_SIDES: Settings = {
    "encoder": {"pattern": ["two-way-attention", "feedforward"], "num_layers": 6, "positions": "sinusoidal"},
    "decoder": {
        "pattern": ["attention", "cross-attention", "feedforward"],
        "num_layers": 9,
        "positions": "sinusoidal",
        "context": [],
        "attention": None,
    },
}


class Auto(Config):
    """Chosen by the data: characters for texts of one word, else subwords."""

    type: Literal["auto"] = "auto"


def _side(settings: Any) -> Config:
    settings = {"type": settings} if isinstance(settings, str) else settings
    if isinstance(settings, Mapping) and settings.get("type") == "auto":
        return Auto.make(settings, "tokenizer")
    return pick(TOKENIZERS, "tokenizer", settings)


Side = Annotated[SerializeAsAny[Config], BeforeValidator(_side)]


class PairTokenizers(Config):
    """How sources and targets become tokens."""

    type: Literal["pair"] = "pair"
    source: Side = Auto()
    """Tokenizer of the source: its name, or its settings; auto takes characters where most texts are one word, words
    where texts are single signs apart, else bpe."""
    target: Side = Auto()
    """Tokenizer of the target."""
    shared: bool = False
    """One tokenizer, learned from both; needed for model.shared_embeddings."""


class TranslateSettings(TaskSettings):
    Data, models, default_model = PairsConfig, TRANSLATORS, "encoder-decoder"
    metrics = (
        "exact_match", "error_rate", "word_error_rate", "character_error_rate", "bleu", "chrf", "attention_hits",
    )  # fmt: skip
    has_targets = searches = synthetic = starts_from = True

    def complete(self, settings: Settings) -> Settings:
        return {"tokenizer": {}, **super().complete(settings)}

    def tokenizer(self, settings: Any) -> Config:
        """One for both sides, or one for each: {source: character, target: word}."""
        if isinstance(settings, Config):
            return settings
        both = isinstance(settings, str) or (isinstance(settings, Mapping) and settings.get("type", "pair") != "pair")
        return PairTokenizers.make({"source": settings, "target": settings} if both else settings, where="tokenizer")

    def of_layer(self, name: str, settings: Mapping[str, Any]) -> Settings:
        """Both stacks of one layer, the encoder bidirectional; attention makes a Transformer."""
        made = {key: value for key, value in settings.items() if key != "type"}
        if name == "attention":
            both: Settings = {"residual": True, "norm": "pre", "embedding_scale": 0}
            parts = {side: both | TRANSFORMER_SIDES[side] for side in ("encoder", "decoder")}
        else:
            causal = LAYERS[name].causal
            parts = {"encoder": {"pattern": [{"bidirectional": {"layer": name}} if causal else name]}}
            parts |= {"decoder": {"pattern": [name]}}
        for side, part in parts.items():
            made[side] = part | dict(made.get(side) or {})
        return {**made, "type": self.default_model}

    def transformer(self, settings: Settings) -> Settings:
        return self.of_layer("attention", settings)

    def starting_body(self, run: str, stored: Settings, asked: Mapping[str, Any]) -> Settings:
        if stored.get("task") != self.task:
            raise ConfigError(f"start_from: {run} is no model that translates")
        return parallel_settings(stored["model"]) if asked.get("type") == "mask-predict" else stored["model"]

    def build_smallest(self, config: Any) -> Any:
        return TRANSLATORS[config.type](config, 2, 2, 0)


@TASKS.register("translate")
class Translate(Task):
    """Translate: any sequence from any other, word after word or all words at once."""

    settings = TranslateSettings()
    Data, Models, Prediction = TranslateData, TranslateModels, TranslatePrediction
    Evaluation = deferred("elman.pipeline.tasks.translate.evaluation:TranslateEvaluation")
    Inspection = deferred("elman.pipeline.tasks.translate.prediction:TranslateInspection")
    Race = deferred("elman.pipeline.tasks.translate.race:TranslateRace")
