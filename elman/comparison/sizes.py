"""Equal size: the width of each entrant is solved for the same number of parameters, to within two hundredths."""

from collections.abc import Callable, Iterator
from typing import Any

from elman.errors import ConfigError
from elman.models.stack import count_parameters, on_meta
from elman.pipeline.recipe import Recipe
from elman.pipeline.sizes import SIDES

TOLERANCE = 0.02
ROUND = (16, 8, 4, 2, 1)  # widths that are multiples of more are faster, so the roundest that fits is taken
NEAR = 20  # widths tried on each side of the one that fits best
WIDEST = 2**16
Settings = dict[str, Any]


def solve(recipe: Recipe, wanted: int, build: Callable[[Any], Any]) -> Settings:
    """Settings of the recipe's model with the width, and the inner width of feed-forward layers or word vectors where a
    width alone is too coarse, that come within the tolerance."""
    kind, settings = recipe.kind, recipe.model.plain()

    def count(changed: Settings) -> int | None:
        try:
            return on_meta(lambda: count_parameters(build(kind.model_config(changed))))
        except ConfigError:
            return None

    widths = {width: count(_wide(settings, width)) for width in _around(settings, wanted, count)}
    sizes = {width: size for width, size in widths.items() if size is not None}
    if not sizes:
        build(kind.model_config(settings))  # its error says what is wrong
        raise ConfigError(f"no width makes a model of about {wanted:,} parameters; set parameters: 0")
    for width in sorted(sizes, key=lambda width: (_roughness(width), abs(sizes[width] - wanted))):
        if _close(sizes[width], wanted, TOLERANCE / 2):
            return _wide(settings, width)
    best = min(sizes, key=lambda width: abs(sizes[width] - wanted))
    if _close(sizes[best], wanted, TOLERANCE):
        return _wide(settings, best)
    for width in sorted(sizes, key=lambda width: abs(sizes[width] - wanted)):
        filled = _filled(_wide(settings, width), wanted, count)
        if filled is not None:
            return filled
    raise ConfigError(
        f"no width comes within {TOLERANCE:.0%} of {wanted:,} parameters: the nearest has {sizes[best]:,}; give other "
        "parameters, or 0 and a model.hidden_size for each entrant"
    )


def _close(size: int, wanted: int, share: float) -> bool:
    return abs(size - wanted) <= share * wanted


def _roughness(width: int) -> int:
    return next(place for place, step in enumerate(ROUND) if width % step == 0)


def _wide(settings: Settings, width: int) -> Settings:
    return _each(settings, lambda part, number: {**part, "hidden_size": number}, width)


def _around(settings: Settings, wanted: int, count: Callable[[Settings], int | None]) -> Iterator[int]:
    """Widths about the one whose size is right; found by halving among multiples that can surely be built."""
    coarse = next((step for step in (1, 2, 4, 8, 16, 32, 48, 64, 128) if _builds(settings, step, count)), 0)
    if not coarse:
        return
    low, high = 1, 2
    while (count(_wide(settings, high * coarse)) or 0) < wanted and high * coarse < WIDEST:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (count(_wide(settings, middle * coarse)) or 0) < wanted else (low, middle)
    for times in range(max(1, high - NEAR), high + NEAR):
        yield times * coarse


def _builds(settings: Settings, step: int, count: Callable[[Settings], int | None]) -> bool:
    return all(count(_wide(settings, step * times)) is not None for times in (1, 2, 3, 5, 7))


def _filled(settings: Settings, wanted: int, count: Callable[[Settings], int | None]) -> Settings | None:
    """The same width with feed-forward layers as wide inside as is right, or word vectors, where they may differ."""
    parts = [settings[side] for side in SIDES if side in settings] or [settings]
    width = int(parts[0]["hidden_size"])
    dials: list[tuple[Callable[[Settings, int], Settings], int, int]] = [(_worded, max(1, width // 2), 2 * width)]
    if any("feedforward" in entry for part in parts for entry in part["pattern"]):
        dials.insert(0, (_inside, width, 8 * width))
    for dial, least, most in dials:
        low, high = least, most
        while high - low > 1:
            middle = (low + high) // 2
            size = count(_each(settings, dial, middle))
            if size is None:  # as word vectors that must be as wide as what they are tied to
                break
            low, high = (middle, high) if size < wanted else (low, middle)
        for number in (low, high):
            turned = _each(settings, dial, number)
            if _close(count(turned) or 0, wanted, TOLERANCE):
                return turned
    return None


def _each(settings: Settings, dial: Callable[[Settings, int], Settings], number: int) -> Settings:
    sides: Settings = {side: dial(settings[side], number) for side in SIDES if side in settings}
    return {**settings, **sides} if sides else dial(settings, number)


def _inside(part: Settings, size: int) -> Settings:
    pattern = [
        {name: {**own, "inner_size": size} if name == "feedforward" else own for name, own in entry.items()}
        for entry in part["pattern"]
    ]
    return {**part, "pattern": pattern}


def _worded(part: Settings, size: int) -> Settings:
    return {**part, "embedding_size": size}
