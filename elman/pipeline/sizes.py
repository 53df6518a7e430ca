"""One dial for the size of a model: a word, or a number of parameters to come close to."""

import re
from collections.abc import Callable
from typing import Any

from elman.errors import ConfigError, nearest
from elman.models.stack import count_parameters, on_meta
from elman.pipeline.recipe import Recipe, task_of

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "num_layers": 1},
    "small": {"hidden_size": 256, "num_layers": 2, "dropout": 0.1},
    "medium": {"hidden_size": 512, "num_layers": 2, "dropout": 0.3},
    "large": {"hidden_size": 1024, "num_layers": 3, "dropout": 0.5},
}
SIDES = ("encoder", "decoder")
STEPS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128)  # of widths: even for kernels; heads may ask for larger ones


def size_overrides(size: str, model: Any = None, task: str | None = None) -> dict[str, Any]:
    """Settings for a size of a model, which may be a name or settings. Its layers are repetitions of the pattern that
    it has by itself: blocks stay whole."""
    if size not in SIZES:
        raise ConfigError(f"unknown size {size!r}{nearest(size, SIZES)}; known: {', '.join(SIZES)}")
    kind = task_of({"task": task, "model": model})
    config = kind.model_config(model or kind.default_model)
    parts = {f"{side}.": getattr(config, side) for side in SIDES if hasattr(config, side)} or {"": config}
    found = {}
    for place, part in parts.items():
        once = len(getattr(part, "pattern", [None]))
        for key, value in SIZES[size].items():
            found[f"model.{place}{key}"] = value * once if key == "num_layers" else value
    return found


def parse_count(text: str | int) -> int:
    """5M, 250k and 12000 as numbers."""
    match = re.fullmatch(r"([\d.]+)\s*([kKmMbB]?)", str(text).strip())
    if not match:
        raise ConfigError(f"{text!r} is not a number of parameters; write 250k, 5M or 12000")
    return round(float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}[match[2].lower()])


def fit_size(recipe: Recipe, build: Callable[[Any], Any]) -> Recipe:
    """The recipe with the hidden size that comes closest to the parameters asked for, if any were."""
    if not recipe.parameters:
        return recipe
    wanted, step = parse_count(recipe.parameters), _step(recipe)
    low, high = 1, 2
    while _count(recipe, high * step, build) < wanted:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _count(recipe, middle * step, build) < wanted else (low, middle)
    best = min((low, high), key=lambda width: abs(_count(recipe, width * step, build) - wanted))
    return _with_width(recipe, best * step)


def _step(recipe: Recipe) -> int:
    """The first of STEPS whose multiples can be built."""
    for step in STEPS:
        try:
            for times in (1, 2, 3):
                _count(recipe, step * times, recipe.kind.smallest)
        except ConfigError:
            continue
        return step
    _count(recipe, STEPS[0], recipe.kind.smallest)  # its error says what is wrong
    raise ConfigError(f"no width that is a multiple of {STEPS[0]} to {STEPS[-1]} can be built; give model.hidden_size")


def _with_width(recipe: Recipe, width: int) -> Recipe:
    model: Any = recipe.model
    sides = {side: getattr(model, side) for side in SIDES if hasattr(model, side)}
    update: dict[str, Any] = {side: part.model_copy(update={"hidden_size": width}) for side, part in sides.items()}
    return recipe.model_copy(update={"model": model.model_copy(update=update or {"hidden_size": width})})


def _count(recipe: Recipe, width: int, build: Callable[[Any], Any]) -> int:
    config = _with_width(recipe, width).model
    return on_meta(lambda: count_parameters(build(config)))
