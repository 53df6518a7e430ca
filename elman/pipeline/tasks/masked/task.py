"""The task of masked language modelling: language modelling with models that see both sides."""

from collections.abc import Mapping
from typing import Any

from elman.errors import ConfigError
from elman.models import MODELS, is_masked
from elman.pipeline.tasks import TASKS, Measure
from elman.pipeline.tasks.language_model.task import LanguageModelling
from elman.pipeline.tasks.settings import Settings, bidirectional, in_layers


@TASKS.register("masked")
class MaskedModelling(LanguageModelling):
    """Masked language modelling: predicts hidden tokens from the context on both sides."""

    default_model, implied_by = "masked", ("masked",)
    races_stacks = False
    endpoint = "fill"
    entrants = ("gru", "lstm", "attention")
    measures = (Measure("loss", True, "nats per hidden token"),)
    cost_note = (
        "A masked model fills gaps from the context on both sides: it generates no text and has no recurrent state."
    )

    @classmethod
    def complete(cls, settings: Settings) -> Settings:
        model = settings.get("model") or {}
        name = model if isinstance(model, str) else model.get("type", cls.default_model)
        if name in MODELS and not is_masked(MODELS[name]):
            raise ConfigError(f"task masked: a model of type {name!r} does not see both sides; leave model.type out")
        return super().complete(settings)

    @classmethod
    def of_layer(cls, name: str, settings: Mapping[str, Any]) -> Settings:
        """A causal layer is made bidirectional, with the width of its input."""
        return bidirectional(super().of_layer(name, settings), join="sum")

    @classmethod
    def transformer(cls, settings: Settings) -> Settings:
        usual = cls.models[cls.default_model].Config.model_fields["pattern"].default
        pattern, settings = in_layers(settings.get("pattern", usual), "attention", settings)
        return {**settings, "pattern": pattern, "type": cls.default_model}
