"""The input's part of a step: where one nn.Linear makes all of it, whoever runs the sequence may multiply himself."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook
from torch.overrides import TorchFunctionMode


class Driving:
    """What a cell's `drive` calls, found by watching it once, like its step."""

    def __init__(self, cell: Any):
        self.drive = _function(cell)
        self.child = _only_product(cell)

    def product(self, cell: Any, x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """The input, and matrix and bias whose product with it, in this dtype, is the drive.

        Nothing where `drive` does more, or would find something wrong.
        """
        found = self.matrix(cell, x)
        if found is None or not x.dtype == found[0].dtype == kind:
            return None
        weight, bias = found
        return (x, weight, bias) if bias is None or bias.dtype == kind else None

    def matrix(self, cell: Any, x: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """The matrix and bias alone, in whichever dtype they are."""
        linear = cell._modules.get(self.child)
        if type(linear) is not nn.Linear or _watched(linear) or self.drive is not _function(cell):
            return None
        weight, bias = linear._parameters.get("weight"), linear._parameters.get("bias")
        return None if weight is None or x.shape[-1] != weight.shape[1] else (weight, bias)


def _function(cell: Any) -> Any:
    """What is behind the method: another one if somebody has replaced it."""
    return getattr(cell.drive, "__func__", cell.drive)


def _watched(linear: nn.Linear) -> bool:
    """Whether someone wants to hear of its calls, or has put something else in their place."""
    own = linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks or linear._backward_pre_hooks
    return bool(own) or "forward" in linear.__dict__ or _has_any_global_hook()


class _Calls(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.seen.append((function, args, result))
        return result


def _only_product(cell: Any) -> str | None:
    """The name of the child whose product with the input is what `drive` gives."""
    weight = next(cell.parameters())
    x = torch.zeros(1, 1, cell.input_size, dtype=weight.dtype, device=weight.device)
    calls = _Calls()
    with torch.no_grad(), torch.random.fork_rng([weight.device] if weight.is_cuda else []), calls:
        drive = cell.drive(x)
    if [function for function, _, _ in calls.seen] != [F.linear]:
        return None
    _, args, result = calls.seen[0]
    for name, child in cell.named_children():
        if type(child) is nn.Linear and result is drive and _same(args, (x, child.weight, child.bias)):
            return name
    return None


def _same(args: tuple[Any, ...], expected: tuple[Tensor | None, ...]) -> bool:
    return len(args) == 3 and all(one is other for one, other in zip(args, expected, strict=True))
