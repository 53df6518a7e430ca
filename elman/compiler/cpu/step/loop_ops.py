"""Operations that become loops: an expression at every index, and reductions over some axes."""

import math
from typing import Any

import numpy as np
import torch

from elman.compiler.cpu.c_source import c_type
from elman.compiler.cpu.step.buffers import Value
from elman.compiler.cpu.step.loops import LoopFuser
from elman.compiler.errors import CannotCompile

REDUCTIONS = {  # by ATen's name: the initial value, and how the next element is accumulated
    "amax": ("-INFINITY", "larger({0}, {1})"),
    "amin": ("INFINITY", "smaller({0}, {1})"),
    "any": ("false", "({0} | {1})"),
    "mean": ("0", "({0} + {1})"),
    "sum": ("0", "({0} + {1})"),
}


class LoopOps:
    """Makes new values from values and Python numbers."""

    def __init__(self, fuser: LoopFuser):
        self.fuser = fuser

    def pointwise(
        self, expression: str, dtype: torch.dtype | None, inputs: list[Any], result: torch.dtype | None = None
    ) -> Value:
        """A new value; inputs are cast to `dtype` if it is given, and Python numbers become literals."""
        result = result or dtype
        assert result is not None
        values = [entry for entry in inputs if isinstance(entry, Value)]
        places = iter(range(len(values)))
        names = [
            f"{{{next(places)}}}" if isinstance(entry, Value) else literal(entry, dtype or result) for entry in inputs
        ]
        target = self.fuser.temporary(np.broadcast_shapes(*(value.shape for value in values)), result)
        self.fuser.assign(expression.format(*names), dtype, values, target)
        return target

    def cast(self, entry: Any, dtype: torch.dtype) -> Any:
        same = not isinstance(entry, Value) or entry.dtype == dtype
        return entry if same else self.pointwise("{0}", dtype, [entry])

    def contiguous(self, value: Value) -> Value:
        return value if value.layout.is_contiguous() else self.pointwise("{0}", value.dtype, [value])

    def reduction(self, name: str, dtype: torch.dtype, value: Value, axes: Any = None, keepdim: bool = False) -> Value:
        dimensions = len(value.shape)
        axes = [axes] if isinstance(axes, int) else axes or range(dimensions)
        reduced = sorted({axis % dimensions for axis in axes})
        kept = [axis for axis in range(dimensions) if axis not in reduced]
        start, expression = REDUCTIONS[name]
        if "INFINITY" in start and not dtype.is_floating_point:
            raise CannotCompile(f"operation {name} of integers is not supported")
        permuted = value._replace(layout=value.layout.permute(*kept, *reduced))
        target = self.fuser.temporary(permuted.shape[: len(kept)], dtype)
        self.fuser.reduce(start, expression, permuted, len(reduced), target)
        if name == "mean":
            count = math.prod(value.shape[axis] for axis in reduced)
            target = self.pointwise("({0} * {1})", dtype, [target, 1 / count])
        if keepdim:
            shape = [1 if axis in reduced else size for axis, size in enumerate(value.shape)]
            target = target._replace(layout=target.layout.view(shape))
        return target


def literal(number: float, dtype: torch.dtype) -> str:
    """A Python number as a C literal of this dtype."""
    if math.isinf(number):
        return "-INFINITY" if number < 0 else "INFINITY"
    if math.isnan(number):
        return "NAN"
    text = repr(int(number)) if not (dtype.is_floating_point or dtype.is_complex) else repr(float(number))
    return f"({c_type(dtype)}){text}"
