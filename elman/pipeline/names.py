"""Every registered name, for listings and docs."""

import inspect

from elman.cells import CELLS
from elman.corpus.synthetic import LANGUAGES
from elman.layers import LAYERS
from elman.models import MODELS, TASK_MODELS
from elman.pipeline.tasks import TASKS
from elman.pipeline.tasks.base import TRANSFORMER
from elman.tokenizers import TOKENIZERS

FORMS = {
    TRANSFORMER: "Attention and feed-forward layers in turn (Vaswani et al., 2017), in the form that the task asks for."
}


def every_name() -> dict[str, dict[str, str]]:
    """By kind, each with one line on what it is."""
    kinds = {"cells": CELLS, "layers": LAYERS, "models": MODELS}
    found = {kind: registry.describe() for kind, registry in kinds.items()}  # type: ignore[attr-defined]
    for registry in TASK_MODELS.values():
        found["models"] |= registry.describe()
    found["models"] |= FORMS
    tasks = {name: (inspect.getdoc(task) or "").partition("\n")[0] for name, task in TASKS.items()}
    return {"tasks": tasks, **found, "tokenizers": TOKENIZERS.describe(), "languages": LANGUAGES.describe()}
