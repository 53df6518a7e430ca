"""The task of masked language modelling: language modelling with models that see both sides."""

from collections.abc import Mapping
from typing import Any

from elman.errors import ConfigError
from elman.models import MODELS, is_masked
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.base import deferred
from elman.pipeline.tasks.language_model.task import LanguageModelling, LanguageSettings
from elman.pipeline.tasks.settings import Settings, bidirectional


class MaskedSettings(LanguageSettings):
    default_model, implied_by = "masked", ("masked",)

    def complete(self, settings: Settings) -> Settings:
        model = settings.get("model") or {}
        name = model if isinstance(model, str) else model.get("type", self.default_model)
        if name in MODELS and not is_masked(MODELS[name]):
            raise ConfigError(f"task masked: a model of type {name!r} does not see both sides; leave model.type out")
        return super().complete(settings)

    def of_layer(self, name: str, settings: Mapping[str, Any]) -> Settings:
        """A causal layer is made bidirectional, with the width of its input."""
        return bidirectional(super().of_layer(name, settings), join="sum")

    def transformer(self, settings: Settings) -> Settings:
        return {**settings, "type": self.default_model}


@TASKS.register("masked")
class MaskedModelling(LanguageModelling):
    """Masked language modelling: predicts hidden tokens from the context on both sides."""

    settings = MaskedSettings()
    Race = deferred("elman.pipeline.tasks.masked.race:MaskedRace")
