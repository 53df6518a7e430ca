"""Warnings: texts longer than a model has learned positions for, and models without any positions."""

from collections.abc import Iterable
from typing import Any

from elman.layers.feedforward import Pointwise
from elman.layers.heads import HeadedLayer
from elman.layers.positions import Positions
from elman.models.stack import Stack


def learned_positions(model: Any, part: str = "") -> int | None:
    """The fewest learned positions in a model, or in a part of it; None where none are learned."""
    found = [
        layer.config.context
        for name, layer in model.named_modules()
        if isinstance(layer, Positions) and layer.config.kind == "learned" and (not part or part in name.split("."))
    ]
    return min(found, default=None)


def count_longer(lengths: Iterable[int], positions: int | None) -> int:
    return 0 if positions is None else sum(length > positions for length in lengths)


def length_warning(count: int, what: str, positions: int | None) -> list[str]:
    """A warning about texts that are too long, if there are any."""
    remedy = "after the last comes the first again (model.max_positions sets how many there are)"
    return [f"{count:,} {what} longer than the model's {positions:,} learned positions: {remedy}"] if count else []


def ignores_order(stack: Stack) -> bool:
    """Whether it reads a text as a bag of tokens: attention without positions, beside layers that see one token each.
    Of two causal attention layers the second may infer positions from how many tokens the first has seen."""
    layers = [block.layer for block in stack.blocks()]
    attention = [layer for layer in layers if isinstance(layer, HeadedLayer)]
    others = [layer for layer in layers if not isinstance(layer, HeadedLayer | Pointwise)]
    if stack.positions is not None or others or any(layer.config.positions != "none" for layer in attention):
        return False
    return len(attention) == 1 or (len(attention) > 1 and not any(layer.causal for layer in attention))


def order_warning(model: Any) -> list[str]:
    """A warning for a model that ignores token order, which is rarely intended."""
    if not any(ignores_order(part) for part in model.modules() if isinstance(part, Stack)):
        return []
    remedy = "--model transformer, positions: rotary of the layer, or model.positions add it"
    return [f"attention without positions ignores the order of tokens ({remedy})"]
