"""The two kinds of loops that operations are made of: a formula at every place, and a sum over some axes."""

import math
from typing import Any

import numpy as np
import torch

from elman.compiler.cpu.step.buffers import Value, c_type
from elman.compiler.cpu.step.loops import LoopWriter
from elman.compiler.errors import CannotCompile

aten = torch.ops.aten
REDUCTIONS = {  # over some axes: start, and how the next number is taken in
    aten.amax: ("-INFINITY", "larger({0}, {1})"),
    aten.amin: ("INFINITY", "smaller({0}, {1})"),
    aten.any: ("false", "({0} | {1})"),
    aten.mean: ("0", "({0} + {1})"),
    aten.sum: ("0", "({0} + {1})"),
}


class Builder:
    """Makes new values from values and plain numbers."""

    def __init__(self, writer: LoopWriter):
        self.writer = writer

    def pointwise(
        self, formula: str, dtype: torch.dtype | None, inputs: list[Any], result: torch.dtype | None = None
    ) -> Value:
        """A new value, from inputs as they are or turned into `dtype`; plain numbers are written into the formula."""
        kind = result or dtype
        assert kind is not None
        values = [entry for entry in inputs if isinstance(entry, Value)]
        places = iter(range(len(values)))
        names = [
            f"{{{next(places)}}}" if isinstance(entry, Value) else literal(entry, dtype or kind) for entry in inputs
        ]
        target = self.writer.temporary(np.broadcast_shapes(*(value.shape for value in values)), kind)
        self.writer.each(formula.format(*names), dtype, values, target)
        return target

    def cast(self, entry: Any, dtype: torch.dtype) -> Any:
        same = not isinstance(entry, Value) or entry.dtype == dtype
        return entry if same else self.pointwise("{0}", dtype, [entry])

    def contiguous(self, value: Value) -> Value:
        return value if value.layout.is_contiguous() else self.pointwise("{0}", value.dtype, [value])

    def reduction(self, packet: Any, dtype: torch.dtype, value: Value, axes: Any = None, keep: bool = False) -> Value:
        dimensions = len(value.shape)
        axes = [axes] if isinstance(axes, int) else axes or range(dimensions)
        reduced = sorted({axis % dimensions for axis in axes})
        kept = [axis for axis in range(dimensions) if axis not in reduced]
        start, formula = REDUCTIONS[packet]
        if "INFINITY" in start and not dtype.is_floating_point:
            raise CannotCompile(f"operation {packet.__name__} of whole numbers is not known")
        turned = value._replace(layout=value.layout.permute(*kept, *reduced))
        target = self.writer.temporary(turned.shape[: len(kept)], dtype)
        self.writer.reduce(start, formula, turned, len(reduced), target)
        if packet is aten.mean:
            count = math.prod(value.shape[axis] for axis in reduced)
            target = self.pointwise("({0} * {1})", dtype, [target, 1 / count])
        if keep:
            shape = [1 if axis in reduced else size for axis, size in enumerate(value.shape)]
            target = target._replace(layout=target.layout.view(shape))
        return target


def literal(number: float, dtype: torch.dtype) -> str:
    """A number as C writes it, in the given type."""
    if math.isinf(number):
        return "-INFINITY" if number < 0 else "INFINITY"
    if math.isnan(number):
        return "NAN"
    text = repr(int(number)) if not (dtype.is_floating_point or dtype.is_complex) else repr(float(number))
    return f"({c_type(dtype)}){text}"
