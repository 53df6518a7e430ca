"""Precision of gradients: float64 shows what underflows in float32."""

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
    """The model, or a converted copy where its dtype is another; n-gram models have no parameters."""
    dtype = dtype_of(precision)
    if not isinstance(model, nn.Module) or all(one.dtype == dtype for one in model.parameters()):
        return model
    return deepcopy(model).to(dtype)
