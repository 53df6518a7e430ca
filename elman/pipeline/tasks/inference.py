"""Recurrent state of trained models after a number of tokens, for the inference costs of a race."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

CONTEXTS = (1, 16, 64, 256, 1024)


def stack_state(model: Any) -> Callable[[Tensor], Any]:
    """Of a model that embeds tokens and runs a stack over them."""
    return lambda tokens: model.stack(model.embedding(tokens))[1]


def language_model_state(model: Any) -> Callable[[Tensor], Any]:
    return lambda tokens: model(tokens, model.initial_state(1))[1]
