"""The task of language modelling, and its settings."""

from collections.abc import Mapping
from typing import Any

from elman.models import MODELS, StackConfig
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.base import Task, deferred
from elman.pipeline.tasks.language_model.data import LanguageData, LanguageModels
from elman.pipeline.tasks.settings import Settings, TaskSettings


class LanguageSettings(TaskSettings):
    models, default_model = MODELS, "stack"
    synthetic = provides_body = True

    def complete(self, settings: Settings) -> Settings:
        """The default tokenizer: words for a synthetic language (the default data), else characters."""
        data = settings.get("data") or {}
        if not isinstance(data, Mapping) or (data.get("train") is None and data.get("language") is None):
            opened = dict(data) if isinstance(data, Mapping) else {}
            settings = {**settings, "data": opened | {"language": {"type": "agreement"}}}
        return {"tokenizer": "character" if isinstance(data, Mapping) and data.get("train") else "word", **settings}

    def check_model(self, config: Any) -> None:
        if isinstance(config, StackConfig):
            super().check_model(config)

    def build_smallest(self, config: Any) -> Any:
        return MODELS[config.type](config, 2)

    def run_name(self, config: Any) -> str:
        return config.type if config.type == "masked" else super().run_name(config)


@TASKS.register("language-model")
class LanguageModelling(Task):
    """Language modelling: predicts the next token from those before it."""

    settings = LanguageSettings()
    Data, Models = LanguageData, LanguageModels
    Evaluation = deferred("elman.pipeline.tasks.language_model.evaluation:LanguageEvaluation")
    Prediction = deferred("elman.pipeline.tasks.language_model.prediction:LanguagePrediction")
    Inspection = deferred("elman.pipeline.tasks.language_model.prediction:LanguageInspection")
    Race = deferred("elman.pipeline.tasks.language_model.race:LanguageRace")
