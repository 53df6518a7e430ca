"""In which precision gradients are taken: what float32 loses to zero, float64 still shows."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from elman.errors import ConfigError

PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


def dtype_of(precision: str) -> torch.dtype:
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r}: one of {', '.join(PRECISIONS)}")
    return PRECISIONS[precision]


def in_precision(model: Any, precision: str) -> Any:
    """The model, or if its numbers are others, a copy of it; counted models have none."""
    dtype = dtype_of(precision)
    if not isinstance(model, nn.Module) or all(one.dtype == dtype for one in model.parameters()):
        return model
    return deepcopy(model).to(dtype)
