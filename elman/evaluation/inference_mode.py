"""A model held still: evaluation mode and no gradients while it is looked at, everything as before afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn


@contextmanager
def inference_mode(model: Any, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode inside; outside, each module trains or not as it did before. Counted models have no modes.

    With `gradients`, those that are asked for can be had.
    """
    training = [module for module in model.modules() if module.training] if isinstance(model, nn.Module) else []
    try:
        for module in training:
            module.training = False
        with torch.enable_grad() if gradients else torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def device_of(model: Any) -> torch.device:
    """Where the model's numbers are; the CPU for a model that has none."""
    if not isinstance(model, nn.Module):
        return torch.device("cpu")
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device
