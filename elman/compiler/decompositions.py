"""Decompositions of composite ATen operations into core operations.

Torch has them all, but those of the most common operations import torch's compiler, which takes a second before the
first step. These are written out here.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.utils import _pytree as pytree

aten = torch.ops.aten


def layer_norm(x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    x = x.contiguous()  # torch's results are contiguous, here and below
    variance, mean = torch.var_mean(x, list(range(x.dim() - len(shape), x.dim())), correction=0, keepdim=True)
    scale = torch.rsqrt(variance + eps)
    y = (x - mean) * scale
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, scale


def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    x = x.contiguous()
    exponents = (x - x.amax(dim, keepdim=True)).exp()
    return exponents / exponents.sum(dim, keepdim=True)


def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    x = x.contiguous()
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = x if beta == 1 else x * beta
    soft = torch.log1p(torch.exp(scaled))
    return torch.where(scaled > threshold, x, soft if beta == 1 else soft / beta)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    value, gate = aten.split_with_sizes(x, [x.shape[dim] // 2] * 2, dim)
    return value * torch.sigmoid(gate)


def split(x: Tensor, size: int, dim: int = 0) -> Any:
    length = x.shape[dim]
    return aten.split_with_sizes(x, [min(size, length - start) for start in range(0, length, size)], dim)


def stack(tensors: list[Tensor], dim: int = 0) -> Tensor:
    return torch.cat([one.unsqueeze(dim) for one in tensors], dim)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm.default: layer_norm,
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
    aten.silu.default: silu,
    aten.gelu.default: gelu,
    aten.softplus.default: softplus,
    aten.glu.default: glu,
    aten.split.Tensor: split,
    aten.stack.default: stack,
}
FULL_PRECISION = (torch.float32, torch.float64)


@cache
def torch_decompositions() -> dict[Any, Callable[..., Any]]:
    return {**core_aten_decompositions(), **get_decompositions(list(DECOMPOSITIONS))}


def decomposition(operation: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """The decomposition of an operation at these arguments; it returns `NotImplemented` for a core operation."""
    if operation in DECOMPOSITIONS and pytree.tree_leaves(args)[0].dtype in FULL_PRECISION:
        return DECOMPOSITIONS[operation]
    return torch_decompositions().get(operation, operation.decompose)
