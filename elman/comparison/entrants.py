"""Entrants of a race: families in their usual form for a task, or any settings under another name."""

from collections.abc import Mapping
from typing import Any

from elman.config import override
from elman.errors import ConfigError
from elman.models import MODELS
from elman.pipeline.tasks import Task

Settings = dict[str, Any]


def model_settings(task: type[Task], name: str, given: Mapping[str, Any], shared: Mapping[str, Any]) -> Settings:
    """Settings of an entrant's model: those given, above those that all share, above the customary ones of its name.

    A model that is fitted by counting takes none of the shared ones.
    """
    default, customary = task.default_model, task.customary_model(name)
    if customary is not None:
        settings: Settings = {"type": default, **customary}
    elif given.keys() & {"type", "pattern", "encoder", "decoder"}:
        settings = {"type": given.get("type", default)}
    else:
        settings = {"type": name}
    if not fits_by_counting(settings["type"]):
        settings = override(settings, dict(shared))
    try:
        return task.typed_model(override(settings, dict(given))).plain()
    except ConfigError as error:
        raise ConfigError(f"entrant {name}: {error}") from None


def fits_by_counting(model: str) -> bool:
    """Whether a model type is fitted by counting: no size, no learning rate, no randomness."""
    return model in MODELS and getattr(MODELS[model], "fits_by_counting", False)
