"""Evaluation mode without gradients as a context manager that restores the mode of every module."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn


@contextmanager
def inference_mode(model: Any, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode and `torch.inference_mode`, or with `gradients` evaluation mode with autograd.

    Afterwards each module is back in its mode. Models that are no torch modules (n-grams) have none.
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
    """The device of the model's parameters or buffers; the CPU for a model without any."""
    if not isinstance(model, nn.Module):
        return torch.device("cpu")
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device
