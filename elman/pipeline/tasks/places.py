"""Texts that are longer than a model has learned positions for, and models that know no positions."""

from collections.abc import Iterable
from typing import Any

from elman.layers.feedforward import Pointwise
from elman.layers.heads import HeadedLayer
from elman.layers.positions import Positions
from elman.models.stack import Stack


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


def blind(stack: Stack) -> bool:
    """Whether it reads what came before as a bag of tokens: by attention without positions, beside layers that see one
    token each. Of two causal layers the second may tell places from how many the first has seen."""
    layers = [block.layer for block in stack.blocks()]
    attention = [layer for layer in layers if isinstance(layer, HeadedLayer)]
    others = [layer for layer in layers if not isinstance(layer, HeadedLayer | Pointwise)]
    if stack.positions is not None or others or any(layer.config.positions != "none" for layer in attention):
        return False
    return len(attention) == 1 or (len(attention) > 1 and not any(layer.causal for layer in attention))


def unplaced(model: Any) -> list[str]:
    """A sentence for who trains such a model, and likely meant another."""
    if not any(blind(part) for part in model.modules() if isinstance(part, Stack)):
        return []
    remedy = "--model transformer, positions: rotary of the layer, or model.positions tell it"
    return [f"attention without positions sees which tokens there are, but not their order ({remedy})"]
