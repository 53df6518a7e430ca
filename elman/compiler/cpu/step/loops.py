"""Element-wise operations and reductions as C++ loops, with loop fusion: each operation adds a statement, and
consecutive ones of the same shape share a loop nest.

    relu(x) * y + z   ->   for (i0...) { v1 = relu(x[i0]); v2 = v1 * y[i0]; v3 = v2 + z[i0]; t2[i0] = v3; }

In a nest a value is a local variable; it is stored only if something outside of the nest reads it (dead stores are
dropped at the end). A reduction over the last axes is computed in the nest of its argument.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from elman.compiler.cpu.build import c_type
from elman.compiler.cpu.step.buffers import Buffer, Value, loop_variables
from elman.compiler.errors import CannotCompile

REDUCTIONS = {  # by ATen's name: the initial value, and how the next element is accumulated
    "amax": ("-INFINITY", "larger({0}, {1})"),
    "amin": ("INFINITY", "smaller({0}, {1})"),
    "any": ("false", "({0} | {1})"),
    "mean": ("0", "({0} + {1})"),
    "sum": ("0", "({0} + {1})"),
}
CONSTANT, VALUES = re.compile(r"const \w+ (v\d+) = "), re.compile(r"\bv\d+\b")
Statements = list[tuple[str, Buffer | None]]  # C, and the buffer for whose sake alone it is there


@dataclass
class LoopNest:
    sizes: tuple[int, ...]
    depth: int  # loops outside of the reductions; all of them without a reduction
    prologue: Statements = field(default_factory=list)
    body: Statements = field(default_factory=list)
    epilogue: Statements = field(default_factory=list)
    local: dict[str, str] = field(default_factory=dict)  # element in memory -> local variable that holds it
    written: set[Buffer] = field(default_factory=set)

    def can_fuse(self, sizes: tuple[int, ...], depth: int, elements: list[tuple[str, Buffer]]) -> bool:
        """Whether a statement may join: the same loops, and values of this nest are read only at their own index."""
        depths = {self.depth, depth} - {len(sizes)}
        same_index = all(buffer not in self.written or element in self.local for element, buffer in elements)
        return self.sizes == sizes and len(depths) < 2 and same_index

    @property
    def _statements(self) -> tuple[Statements, Statements, Statements]:
        return self.prologue, self.body, self.epilogue

    def text(self, live: set[Buffer]) -> str:
        parts = [[line for line, buffer in one if buffer is None or buffer in live] for one in self._statements]
        prologue, body, epilogue = without_dead_values(parts)
        loops = [f"for (int64_t i{n} = 0; i{n} < {size}; ++i{n})" for n, size in enumerate(self.sizes)]
        inner = "\n".join(body)
        for loop in reversed(loops[self.depth :]):
            inner = f"{loop} {{\n{inner}\n}}"
        inner = "\n".join([*prologue, inner, *epilogue])
        for loop in reversed(loops[: self.depth]):
            inner = f"{loop} {{\n{inner}\n}}"
        return f"{{\n{inner}\n}}"


def without_dead_values(parts: list[list[str]]) -> list[list[str]]:
    """The statements, without constants that no later statement reads."""
    used: set[str] = set()
    kept: list[list[str]] = []
    for lines in reversed(parts):
        kept.insert(0, [])
        for line in reversed(lines):
            declared = CONSTANT.match(line)
            if declared is None or declared[1] in used:
                used.update(VALUES.findall(line))
                kept[0].insert(0, line)
    return kept


@dataclass
class Call:
    """A call of a function of kernels.h."""

    text: str
    reads: list[Buffer]
    only_fills: Buffer | None  # the call is dead if nothing reads this buffer


class Product(NamedTuple):
    """A matrix product with a constant packed matrix, computed for all rows of a batch at once (products.h)."""

    kernel: str
    matrix: str
    x: str
    bias: str
    y: str
    inner: int
    columns: int


class LoopFuser:
    """Collects the body of a program: fused loop nests, and calls of kernels and matrix products between them."""

    def __init__(self) -> None:
        self.parts: list[LoopNest | Call | Product] = []
        self.divided = 0  # parts before this one are not fused with later ones
        self.scratch: list[Buffer] = []
        self.live: set[Buffer] = set()  # buffers that are read from memory
        self.count = 0

    def temporary(self, shape: tuple[int, ...] | torch.Size, dtype: torch.dtype) -> Value:
        c_type(dtype)
        buffer = Buffer(f"t{len(self.scratch)}", "scratch", max(1, torch.Size(shape).numel()), dtype)
        self.scratch.append(buffer)
        return Value.contiguous(buffer, shape)

    def call(self, text: str, reads: list[Value], only_fills: Value | None = None) -> None:
        call = Call(text, [value.buffer for value in reads], only_fills.buffer if only_fills else None)
        self.parts.append(call)
        if only_fills is None:
            self.live.update(call.reads)

    def product(self, product: Product, reads: list[Value]) -> None:
        self.parts.append(product)
        self.live.update(value.buffer for value in reads)

    def divide(self) -> int:
        """Ends fusion with all parts so far; returns their number."""
        self.divided = len(self.parts)
        return self.divided

    def mark_live(self) -> None:
        """Dead-code elimination of calls, once all readers are known."""
        for part in reversed(self.parts):
            if isinstance(part, Call) and part.only_fills in self.live:
                self.live.update(part.reads)

    def assign(self, expression: str, dtype: torch.dtype | None, inputs: list[Value], target: Value) -> None:
        """`target = expression` at every index; `{0}`, `{1}` … are the inputs, cast to `dtype` if it is given."""
        variables, sizes = loop_variables(target.shape)
        nest, read = self._nest(sizes, len(sizes), [v.expand(target.shape) for v in inputs], variables, dtype)
        name, element, c_dtype = self._variable(), target.element(variables), c_type(target.dtype)
        nest.body.append((f"const {c_dtype} {name} = ({c_dtype})({expression.format(*read)});", None))
        nest.body.append((f"{element} = {name};", target.buffer))
        nest.local[element] = name
        nest.written.add(target.buffer)

    def reduce(self, start: str, expression: str, value: Value, last: int, target: Value) -> None:
        """`target = expression(target, value)` over the last axes; `{0}` is the result so far, `{1}` the element."""
        variables, sizes = loop_variables(value.shape)
        kept = len(value.shape) - last
        depth = sum(size != 1 for size in value.shape[:kept])
        if depth == len(sizes):  # the reduced axes have length 1
            single = value._replace(layout=value.layout.view_as(target.layout))
            return self.assign(expression.format(start, "{0}"), target.dtype, [single], target)
        nest, (read,) = self._nest(sizes, depth, [value], variables, target.dtype)
        nest.depth = min(depth, nest.depth)
        name, c_dtype = self._variable(), c_type(target.dtype)
        nest.prologue.append((f"{c_dtype} {name} = {start};", target.buffer))
        nest.body.append((f"{name} = {expression.format(name, read)};", target.buffer))
        nest.epilogue.append((f"{target.element(variables[:kept])} = {name};", target.buffer))
        nest.written.add(target.buffer)

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
        target = self.temporary(np.broadcast_shapes(*(value.shape for value in values)), result)
        self.assign(expression.format(*names), dtype, values, target)
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
        target = self.temporary(permuted.shape[: len(kept)], dtype)
        self.reduce(start, expression, permuted, len(reduced), target)
        if name == "mean":
            count = math.prod(value.shape[axis] for axis in reduced)
            target = self.pointwise("({0} * {1})", dtype, [target, 1 / count])
        if keepdim:
            shape = [1 if axis in reduced else size for axis, size in enumerate(value.shape)]
            target = target._replace(layout=target.layout.view(shape))
        return target

    def text(self, part: LoopNest | Call) -> str:
        """C; empty if nothing reads what it computes."""
        if isinstance(part, LoopNest):
            return part.text(self.live)
        return part.text if part.only_fills is None or part.only_fills in self.live else ""

    def _variable(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _nest(
        self, sizes: tuple[int, ...], depth: int, inputs: list[Value], variables: list[str], dtype: torch.dtype | None
    ) -> tuple[LoopNest, list[str]]:
        """The nest for a new statement, and the expressions with which it reads its inputs."""
        elements = [(value.element(variables), value.buffer) for value in inputs]
        last = self.parts[-1] if len(self.parts) > self.divided else None
        if isinstance(last, LoopNest) and last.can_fuse(sizes, depth, elements):
            nest = last
        else:
            nest = LoopNest(sizes, depth)
            self.parts.append(nest)
        self.live |= {buffer for element, buffer in elements if element not in nest.local}
        read = [nest.local.get(element, element) for element, _ in elements]
        casts = ["" if dtype in (None, value.dtype) else f"({c_type(dtype)})" for value in inputs]
        return nest, [cast + name for cast, name in zip(casts, read, strict=True)]


def literal(number: float, dtype: torch.dtype) -> str:
    """A Python number as a C literal of this dtype."""
    if math.isinf(number):
        return "-INFINITY" if number < 0 else "INFINITY"
    if math.isnan(number):
        return "NAN"
    text = repr(int(number)) if not (dtype.is_floating_point or dtype.is_complex) else repr(float(number))
    return f"({c_type(dtype)}){text}"
