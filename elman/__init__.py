"""Sequence models from n-grams to attention: training, fair comparison, inspection, export.

The names below are imported on first use, so that `import elman` is fast.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "train": "elman.pipeline",
    "iterate": "elman.pipeline",
    "load": "elman.pipeline",
    "compare": "elman.comparison",
    "sweep": "elman.comparison",
    "read_recipe": "elman.pipeline",
    "write_recipe": "elman.pipeline",
    "Recipe": "elman.pipeline",
    "TrainedModel": "elman.pipeline",
    "Report": "elman.training",
    "Trainer": "elman.training",
    "TrainingConfig": "elman.training",
    "LanguageModel": "elman.models",
    "Stack": "elman.models",
    "StackConfig": "elman.models",
    "SequenceLayer": "elman.layers",
    "LAYERS": "elman.layers",
    "Cell": "elman.cells",
    "CELLS": "elman.cells",
    "tap": "elman.ops.taps",
    "record": "elman.ops.taps",
    "edit": "elman.ops.taps",
    "ElmanError": "elman.errors",
    "inspect": "elman.inspection.untrained",
    "serve": "elman.serving.run",
}
__all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'elman' has no attribute {name!r}")
    module = import_module(_MODULES[name])
    return module if name == "inspect" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
