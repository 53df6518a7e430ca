"""The size of a model: a word, or a number of parameters, for which the width is solved."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from elman.errors import ConfigError, nearest
from elman.models.stack import count_parameters, on_meta
from elman.pipeline.recipe import Recipe, task_of
from elman.pipeline.tasks.pretrained_vectors import SIDES

MULTIPLES = (16, 8, 4, 2, 1)  # widths that are multiples of larger powers of two are faster
CLOSE = 0.01  # relative error of the size at which the roundest width is taken
TOLERANCE = 0.02  # relative error of the size in a race
NEAR = 20  # widths tried on each side of the one that fits best
MAX_WIDTH = 2**16
MAX_STEP = 128  # of widths, as heads and groups may ask for
Settings = dict[str, Any]
Size = Callable[[Settings], int | None]
Dial = Callable[[Settings, int], Settings]  # sets an inner width
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
    """The recipe with the roundest hidden size that comes close to the parameters asked for, if any were."""
    if not recipe.parameters:
        return recipe
    parameters = parse_count(recipe.parameters)
    width = roundest(sizes_near(recipe.model, parameters, build), parameters)
    return recipe.model_copy(update={"model": with_width(recipe.model, width)})


def size_notes(recipe: Recipe, model: Any) -> list[str]:
    """A note where no width made a model of the size that was asked for."""
    asked, built = parse_count(recipe.parameters), count_parameters(model)
    if not asked or _is_close(built, asked):
        return []
    return [f"no width makes a model of {asked:,} parameters: built one of {built:,}"]


def closest_width(size: Callable[[int], int], parameters: int, widths: Sequence[int]) -> int:
    """Of increasing widths, the one whose size is closest to a number of parameters."""
    large_enough = bisect_left(widths, parameters, key=size)
    around = widths[max(0, large_enough - 1) : large_enough + 1]
    return min(around, key=lambda width: abs(size(width) - parameters))


def fit_exactly(model: Any, parameters: int, build: Callable[[Any], Any], typed: Callable[[Settings], Any]) -> Any:
    """Settings of a model within `TOLERANCE` of a number of parameters: where a width alone is too coarse, also by the
    inner width of feed-forward layers or of word vectors. `typed` makes settings of plain ones."""
    sizes = sizes_near(model, parameters, build)
    best = roundest(sizes, parameters)
    if _is_close(sizes[best], parameters):
        return typed(with_width(model, best).plain())

    def size(settings: Settings) -> int | None:
        return count(lambda: build(typed(settings)))

    for width in sorted(sizes, key=lambda width: abs(sizes[width] - parameters)):
        settings = _fit_inner_width(with_width(model, width).plain(), parameters, size)
        if settings is not None:
            return typed(settings)
    raise ConfigError(
        f"no width comes within {TOLERANCE:.0%} of {parameters:,} parameters: the nearest has {sizes[best]:,}; give "
        "other parameters, or 0 and a model.hidden_size for each entrant"
    )


def roundest(sizes: Mapping[int, int], parameters: int) -> int:
    """The roundest of the widths that come close to a number of parameters; if none does, the closest."""
    close = [width for width, size in sizes.items() if abs(size - parameters) <= CLOSE * parameters]
    return min(close or sizes, key=lambda width: (_roughness(width) if close else 0, abs(sizes[width] - parameters)))


def sizes_near(model: Any, parameters: int, build: Callable[[Any], Any]) -> dict[int, int]:
    """Parameters by width, for widths around the one that fits."""

    def size(width: int) -> int:
        return count(lambda: build(with_width(model, width))) or 0

    sizes = {width: size(width) for width in _around(parameters, size)}
    if not any(sizes.values()):
        build(model)  # raises the readable error
        raise ConfigError(f"no width makes a model of about {parameters:,} parameters; set parameters: 0")
    return {width: found for width, found in sizes.items() if found}


def with_width(model: Any, width: int) -> Any:
    sides = {side: getattr(model, side) for side in SIDES if hasattr(model, side)}
    update: Settings = {side: part.model_copy(update={"hidden_size": width}) for side, part in sides.items()}
    return model.model_copy(update=update or {"hidden_size": width})


def count(build: Callable[[], Any]) -> int | None:
    """Number of parameters, by building on the meta device; None if the settings are invalid."""
    try:
        return on_meta(lambda: count_parameters(build()))
    except ConfigError:
        return None


def _around(parameters: int, size: Callable[[int], int]) -> Iterator[int]:
    """Binary search among multiples of the smallest step whose multiples can be built."""
    step = next((step for step in range(1, MAX_STEP + 1) if all(size(step * n) for n in (1, 2, 3, 5, 7))), 0)
    if not step:
        return
    low, high = 1, 2
    while size(high * step) < parameters and high * step < MAX_WIDTH:
        low, high = high, high * 2
    fit = bisect_left(range(high), parameters, low + 1, key=lambda times: size(times * step))
    for times in range(max(1, fit - NEAR), fit + NEAR):
        yield times * step


def _roughness(width: int) -> int:
    return next(place for place, step in enumerate(MULTIPLES) if width % step == 0)


def _is_close(size: int, parameters: int) -> bool:
    return abs(size - parameters) <= TOLERANCE * parameters


def _fit_inner_width(settings: Settings, parameters: int, size: Size) -> Settings | None:
    """The same width with feed-forward layers, or word vectors, as wide as fits, where they may differ."""
    parts = [settings[side] for side in SIDES if side in settings] or [settings]
    width = int(parts[0]["hidden_size"])
    pretrained = any(part.get("vectors") for part in parts)
    dials: list[tuple[Dial, int, int]] = [] if pretrained else [(_embedded, max(1, width // 2), 2 * width)]
    if any("feedforward" in entry for part in parts for entry in part["pattern"]):
        dials.insert(0, (_inner, width, 8 * width))

    def size_with(dial: Dial, number: int) -> int:
        """0 if invalid, as word vectors that must be as wide as what they are tied to."""
        return size(_each(settings, dial, number)) or 0

    for dial, least, most in dials:
        fit = bisect_left(range(most), parameters, least + 1, key=partial(size_with, dial))
        for number in (fit - 1, fit):
            if _is_close(size_with(dial, number), parameters):
                return _each(settings, dial, number)
    return None


def _each(settings: Settings, dial: Dial, number: int) -> Settings:
    sides: Settings = {side: dial(settings[side], number) for side in SIDES if side in settings}
    return {**settings, **sides} if sides else dial(settings, number)


def _inner(part: Settings, size: int) -> Settings:
    pattern = [
        {name: {**own, "inner_size": size} if name == "feedforward" else own for name, own in entry.items()}
        for entry in part["pattern"]
    ]
    return {**part, "pattern": pattern}


def _embedded(part: Settings, size: int) -> Settings:
    return {**part, "embedding_size": size}
