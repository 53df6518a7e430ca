"""Texts that are longer than a model has learned positions for: after the last comes the first again."""

from collections.abc import Iterable
from typing import Any

from elman.layers.positions import Positions


def learned_places(model: Any, part: str = "") -> int | None:
    """The fewest learned positions in a model, or in a part of it; None where no place is learned."""
    found = [
        layer.config.context
        for name, layer in model.named_modules()
        if isinstance(layer, Positions) and layer.config.kind == "learned" and (not part or part in name.split("."))
    ]
    return min(found, default=None)


def longer(lengths: Iterable[int], places: int | None) -> int:
    return 0 if places is None else sum(length > places for length in lengths)


def told(count: int, what: str, places: int | None) -> list[str]:
    """A sentence on those that are longer, if there are any."""
    remedy = "after the last comes the first again (model.max_positions sets how many there are)"
    return [f"{count:,} {what} longer than the model's {places:,} learned positions: {remedy}"] if count else []
