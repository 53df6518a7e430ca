"""One dial for the size of a model: a word, or a number of parameters to come close to."""

import re
from collections.abc import Callable, Iterator, Mapping
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
ROUND = (16, 8, 4, 2, 1)  # widths that are multiples of more are faster, so the roundest that is close is taken
CLOSE = 0.01  # share of the parameters asked for
NEAR = 20  # widths tried on each side of the one that fits best
WIDEST = 2**16
LARGEST_STEP = 128  # of widths, as heads and groups may ask for


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
    """The recipe with a hidden size that comes close to the parameters asked for, if any were."""
    if not recipe.parameters:
        return recipe
    wanted = parse_count(recipe.parameters)
    return with_width(recipe, roundest(sizes_near(recipe, wanted, build), wanted))


def roundest(sizes: Mapping[int, int], wanted: int) -> int:
    """The roundest of the widths that come close to the parameters wanted; if none does, the one that comes closest."""
    close = [width for width, size in sizes.items() if abs(size - wanted) <= CLOSE * wanted]
    return min(close or sizes, key=lambda width: (_roughness(width) if close else 0, abs(sizes[width] - wanted)))


def sizes_near(recipe: Recipe, wanted: int, build: Callable[[Any], Any]) -> dict[int, int]:
    """Widths about the one whose size is right, each with its parameters."""

    def size(width: int) -> int:
        return count(lambda: build(with_width(recipe, width).model)) or 0

    sizes = {width: size(width) for width in _around(wanted, size)}
    if not any(sizes.values()):
        build(recipe.model)  # its error says what is wrong
        raise ConfigError(f"no width makes a model of about {wanted:,} parameters; set parameters: 0")
    return {width: found for width, found in sizes.items() if found}


def with_width(recipe: Recipe, width: int) -> Recipe:
    model: Any = recipe.model
    sides = {side: getattr(model, side) for side in SIDES if hasattr(model, side)}
    update: dict[str, Any] = {side: part.model_copy(update={"hidden_size": width}) for side, part in sides.items()}
    return recipe.model_copy(update={"model": model.model_copy(update=update or {"hidden_size": width})})


def count(build: Callable[[], Any]) -> int | None:
    """Parameters of what is built, without its memory; none of what cannot be."""
    try:
        return on_meta(lambda: count_parameters(build()))
    except ConfigError:
        return None


def _around(wanted: int, size: Callable[[int], int]) -> Iterator[int]:
    """Found by halving among multiples that can surely be built."""
    step = next((step for step in range(1, LARGEST_STEP + 1) if all(size(step * n) for n in (1, 2, 3, 5, 7))), 0)
    if not step:
        return
    low, high = 1, 2
    while size(high * step) < wanted and high * step < WIDEST:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle * step) < wanted else (low, middle)
    for times in range(max(1, high - NEAR), high + NEAR):
        yield times * step


def _roughness(width: int) -> int:
    return next(place for place, step in enumerate(ROUND) if width % step == 0)
