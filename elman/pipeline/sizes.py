"""One dial for the size of a model: a word, or a number of parameters to come close to."""

import re
from collections.abc import Callable
from typing import Any

from elman.errors import ConfigError, nearest
from elman.pipeline.recipe import Recipe, task_of
from elman.pipeline.width_solver import SIDES, fit_width

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "num_layers": 1},
    "small": {"hidden_size": 256, "num_layers": 2, "dropout": 0.1},
    "medium": {"hidden_size": 512, "num_layers": 2, "dropout": 0.3},
    "large": {"hidden_size": 1024, "num_layers": 3, "dropout": 0.5},
}


def size_overrides(size: str, model: Any = None, task: str | None = None) -> dict[str, Any]:
    """Settings for a size of a model, which may be a name or settings. Its layers are repetitions of the pattern that
    it has by itself: blocks stay complete."""
    if size not in SIZES:
        raise ConfigError(f"unknown size {size!r}{nearest(size, SIZES)}; known: {', '.join(SIZES)}")
    chosen = task_of({"task": task, "model": model})
    config = chosen.typed_model(model or chosen.default_model)
    parts = {f"{side}.": getattr(config, side) for side in SIDES if hasattr(config, side)} or {"": config}
    found = {}
    for side, part in parts.items():
        pattern_length = len(getattr(part, "pattern", [None]))
        for key, value in SIZES[size].items():
            found[f"model.{side}{key}"] = value * pattern_length if key == "num_layers" else value
    return found


def parse_count(text: str | int) -> int:
    """5M, 250k and 12000 as numbers."""
    match = re.fullmatch(r"([\d.]+)\s*([kKmMbB]?)", str(text).strip())
    if not match:
        raise ConfigError(f"{text!r} is not a number of parameters; write 250k, 5M or 12000")
    return round(float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}[match[2].lower()])


def fit_size(recipe: Recipe, build: Callable[[Any], Any]) -> Recipe:
    """The recipe with a hidden size that comes close to the parameters asked for, if any were."""
    if not recipe.parameters:
        return recipe
    return recipe.model_copy(update={"model": fit_width(recipe.model, parse_count(recipe.parameters), build)})
