"""What compiled forms know of a cell: the IR of its step, traced once and cached; the weights that it reads in the
current sequence; and whether its drive is one nn.Linear of the input, a matmul that they can fuse or pad themselves."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook
from torch.overrides import TorchFunctionMode

from elman.compiler.errors import CannotCompile
from elman.compiler.ir import StepIR, mask_finished_rows

T = TypeVar("T")


def cached_per_cell(make: Callable[..., T]) -> Callable[..., T]:
    """Caches `make(cell, *options)` while the cell lives, separately for training and evaluation."""
    cells: WeakKeyDictionary[nn.Module, dict[Any, T]] = WeakKeyDictionary()

    @wraps(make)
    def cached(cell: Any, *options: Any) -> T:
        known, key = cells.get(cell), (cell.training, *options)
        if known is None:
            known = cells[cell] = {}
        if key not in known:
            known[key] = make(cell, *options)
        return known[key]

    return cached


@cached_per_cell
def step_ir(cell: Any, ragged: bool = False, two_pass_variance: bool = False) -> StepIR | str:
    """The IR of the cell's step, or the reason why it has none. `ragged`: for rows of unequal length."""
    from elman.compiler.frontend import trace_cell  # the tracer takes long to import

    try:
        step = trace_cell(cell, two_pass_variance)
    except CannotCompile as reason:
        return f"{cell.name} cannot be compiled: {reason}"
    return mask_finished_rows(step) if ragged else step


def first_parameter(module: nn.Module) -> nn.Parameter:
    """`next(module.parameters())`, without its walk over all modules."""
    stack = [module]
    while stack:
        one = stack.pop()
        for parameter in one._parameters.values():
            if parameter is not None:
                return parameter
        stack += [child for child in reversed(one._modules.values()) if child is not None]
    raise AssertionError(f"{type(module).__name__} has no parameters")


def active_weight(cell: Any, name: str) -> Tensor:
    """A parameter, or its dropped-out version for this sequence (weight dropout)."""
    *path, leaf = name.split(".")
    owner = cell
    for part in path:
        owner = owner._modules[part]
    return getattr(owner, "weight_in_use" if leaf == "weight" and hasattr(type(owner), "weight_in_use") else leaf)


class InputProjection:
    """Which child of a cell its `drive` calls, found by running `drive` once and recording its torch calls."""

    def __init__(self, cell: Any):
        self.drive = _function(cell)
        self.child = _only_linear(cell)

    def operands(self, cell: Any, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """The operands (x, weight, bias) of the F.linear that is the drive, all of this dtype.

        None where `drive` does more than that, or would raise an error.
        """
        found = self.weight_and_bias(cell, x)
        if found is None or not x.dtype == found[0].dtype == dtype:
            return None
        weight, bias = found
        return (x, weight, bias) if bias is None or bias.dtype == dtype else None

    def weight_and_bias(self, cell: Any, x: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """The same in any dtype."""
        linear = cell._modules.get(self.child)
        if type(linear) is not nn.Linear or _hooked(linear) or self.drive is not _function(cell):
            return None
        weight, bias = linear._parameters.get("weight"), linear._parameters.get("bias")
        return None if weight is None or x.shape[-1] != weight.shape[1] else (weight, bias)


def _function(cell: Any) -> Any:
    """The function behind the method `drive`: another one if it was monkey-patched."""
    return getattr(cell.drive, "__func__", cell.drive)


def _hooked(linear: nn.Linear) -> bool:
    """Whether the module has hooks or a replaced `forward`."""
    own = linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks or linear._backward_pre_hooks
    return bool(own) or "forward" in linear.__dict__ or _has_any_global_hook()


class _CallRecorder(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.calls.append((function, args, result))
        return result


def _only_linear(cell: Any) -> str | None:
    """The name of the child nn.Linear whose output is the drive."""
    weight = next(cell.parameters())
    x = torch.zeros(1, 1, cell.input_size, dtype=weight.dtype, device=weight.device)
    recorder = _CallRecorder()
    with torch.no_grad(), torch.random.fork_rng([weight.device] if weight.is_cuda else []), recorder:
        drive = cell.drive(x)
    if [function for function, _, _ in recorder.calls] != [F.linear]:
        return None
    _, args, result = recorder.calls[0]
    for name, child in cell.named_children():
        expected = (x, getattr(child, "weight", None), getattr(child, "bias", None))
        same = len(args) == 3 and all(one is other for one, other in zip(args, expected, strict=True))
        if type(child) is nn.Linear and result is drive and same:
            return name
    return None
