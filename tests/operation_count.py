"""Counts what torch runs, gradients included: costs that are the same on any machine, however busy it is."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OperationCount(TorchDispatchMode):
    """`calls` of operations, which loops in Python make many of; `elements` of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        self.calls += 1
        self.elements += sum(one.numel() for one in tree_leaves(found) if isinstance(one, torch.Tensor))
        return found


def operations(run: Callable[[], object]) -> OperationCount:
    with OperationCount() as count:
        run()
    return count
