"""Equal size: the width of each entrant is solved for the same number of parameters, to within two hundredths."""

from collections.abc import Callable
from typing import Any

from elman.errors import ConfigError
from elman.pipeline.recipe import Recipe
from elman.pipeline.sizes import SIDES, count, roundest, sizes_near, with_width

TOLERANCE = 0.02
Settings = dict[str, Any]


def solve(recipe: Recipe, wanted: int, build: Callable[[Any], Any]) -> Settings:
    """Settings of the recipe's model with the width, and the inner width of feed-forward layers or word vectors where a
    width alone is too coarse, that come within the tolerance."""
    sizes = sizes_near(recipe, wanted, build)
    best = roundest(sizes, wanted)
    if _close(sizes[best], wanted):
        return with_width(recipe, best).model.plain()

    def size(settings: Settings) -> int | None:
        return count(lambda: build(recipe.kind.model_config(settings)))

    for width in sorted(sizes, key=lambda width: abs(sizes[width] - wanted)):
        filled = _filled(with_width(recipe, width).model.plain(), wanted, size)
        if filled is not None:
            return filled
    raise ConfigError(
        f"no width comes within {TOLERANCE:.0%} of {wanted:,} parameters: the nearest has {sizes[best]:,}; give other "
        "parameters, or 0 and a model.hidden_size for each entrant"
    )


def _close(size: int, wanted: int) -> bool:
    return abs(size - wanted) <= TOLERANCE * wanted


def _filled(settings: Settings, wanted: int, size: Callable[[Settings], int | None]) -> Settings | None:
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
            found = size(_each(settings, dial, middle))
            if found is None:  # as word vectors that must be as wide as what they are tied to
                break
            low, high = (middle, high) if found < wanted else (low, middle)
        for number in (low, high):
            turned = _each(settings, dial, number)
            if _close(size(turned) or 0, wanted):
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
