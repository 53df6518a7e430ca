"""Every registered name, for listings and docs."""

from typing import Any

from elman.cells import CELLS
from elman.corpus.synthetic import LANGUAGES
from elman.layers import LAYERS
from elman.models import MODELS
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.settings import TRANSFORMER
from elman.registry import Registry
from elman.tokenizers import TOKENIZERS

FORMS = {
    TRANSFORMER: "Attention and feed-forward layers in turn (Vaswani et al., 2017), in the form that the task asks for."
}


def task_models() -> dict[str, Registry[Any]]:
    """Registries of the models of each task but language models, by what they hold."""
    registries = [TASKS[name].models for name in TASKS]
    return {registry.kind: registry for registry in registries if registry is not MODELS}


def every_name() -> dict[str, dict[str, str]]:
    """By registry, each with the first line of its documentation."""
    kinds: dict[str, Any] = {"tasks": TASKS, "cells": CELLS, "layers": LAYERS, "models": MODELS}
    found: dict[str, dict[str, str]] = {kind: registry.describe() for kind, registry in kinds.items()}
    for registry in task_models().values():
        found["models"] |= registry.describe()
    found["models"] |= FORMS
    return {**found, "tokenizers": TOKENIZERS.describe(), "languages": LANGUAGES.describe()}
