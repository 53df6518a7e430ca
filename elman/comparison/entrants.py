"""Who runs: each family in its customary form for a task, or any settings under a name of their own."""

from collections.abc import Mapping
from typing import Any

from elman.config import override
from elman.errors import ConfigError
from elman.models import MODELS
from elman.pipeline.synthetic_tasks.families import FAMILIES
from elman.pipeline.tasks import Task
from elman.pipeline.tasks.base import TRANSFORMER

Settings = dict[str, Any]

# Sees 31 steps, in half as many layers as Bai et al. (2018) have: a race on two cores has to end.
DILATED = [{"convolution": {"kernel_size": 3, "dilation": dilation, "gated": True}} for dilation in (1, 2, 4, 8)]
FORMS: dict[str, Settings] = {
    **FAMILIES,
    "window": {"pattern": [{"window": {"context": 5}}]},
    "convolution": {"pattern": DILATED, "residual": True, "norm": "pre"},
    TRANSFORMER: FAMILIES["attention"],
}
STACKS = ("language-model", "classify")  # tasks whose models are stacks of one width, as the forms are
FIELDS = {
    "language-model": ("ngram", "window", "rnn", "gru", "lstm", "convolution", "attention", "mingru"),
    "classify": ("rnn", "gru", "lstm", "convolution", "attention", "mingru"),
    "tag": ("rnn", "gru", "lstm", "convolution", "attention"),
    "translate": ("rnn", "gru", "lstm", "attention"),
    "masked": ("gru", "lstm", "attention"),
}


def form(task: type[Task], name: str, given: Mapping[str, Any], shared: Mapping[str, Any]) -> Settings:
    """Settings of an entrant's model: those given, above those that all share, above the customary ones of its name.

    A model that only counts has none of those that are shared.
    """
    if name in FORMS and task.name in STACKS:
        settings: Settings = {"type": task.default_model, **FORMS[name]}
    elif (task.name, name) == ("tag", "attention"):
        settings = {"type": TRANSFORMER}
    elif given.keys() & {"type", "pattern", "encoder", "decoder"}:
        settings = {"type": given.get("type", task.default_model)}
    else:
        settings = {"type": name}
    if not counts(settings["type"]):
        settings = override(settings, dict(shared))
    try:
        return task.model_config(override(settings, dict(given))).plain()
    except ConfigError as error:
        raise ConfigError(f"entrant {name}: {error}") from None


def counts(kind: str) -> bool:
    """Whether a kind of model is fitted by counting: then it has no size, no learning rate and no dice."""
    return kind in MODELS and getattr(MODELS[kind], "fits_by_counting", False)
