"""What each operation of torch's core set is in C: most are a formula for one number, the rest a few lines here."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx

from elman.ops.native.loops import Writer
from elman.ops.native.memory import CannotCompile, Value, c_type
from elman.ops.native.sliding import Slide

aten = torch.ops.aten

FORMULAS = {  # of one number: numbers of the result's type go in
    aten.abs: "absolute({0})",
    aten.add: "({0} + {1})",
    aten.bitwise_and: "({0} & {1})",
    aten.bitwise_not: "(!{0})",
    aten.bitwise_or: "({0} | {1})",
    aten.clone: "{0}",
    aten.cos: "std::cos({0})",
    aten.div: "({0} / {1})",
    aten.erf: "error_function({0})",
    aten.exp: "exponential({0})",
    aten.ceil: "std::ceil({0})",
    aten.floor: "std::floor({0})",
    aten.expm1: "std::expm1({0})",
    aten.log: "std::log({0})",
    aten.log1p: "std::log1p({0})",
    aten.logical_and: "({0} && {1})",
    aten.logical_not: "(!{0})",
    aten.logical_or: "({0} || {1})",
    aten.maximum: "larger({0}, {1})",
    aten.minimum: "smaller({0}, {1})",
    aten.mul: "({0} * {1})",
    aten.neg: "(-{0})",
    aten.pow: "power({0}, {1})",
    aten.reciprocal: "(1 / {0})",
    aten.relu: "({0} < 0 ? 0 : {0})",
    aten.remainder: "modulo({0}, {1})",
    aten.rsqrt: "(1 / std::sqrt({0}))",
    aten.sigmoid: "sigmoid({0})",
    aten.sin: "std::sin({0})",
    aten.sqrt: "std::sqrt({0})",
    aten.sub: "({0} - {1})",
    aten.tanh: "hyperbolic_tangent({0})",
    aten.where: "({0} ? {1} : {2})",
    aten._to_copy: "{0}",
}
COMPARISONS = {aten.eq: "==", aten.ge: ">=", aten.gt: ">", aten.le: "<=", aten.lt: "<", aten.ne: "!="}
REDUCTIONS = {  # over some axes: start, and how the next number is taken in
    aten.amax: ("-INFINITY", "larger({0}, {1})"),
    aten.amin: ("INFINITY", "smaller({0}, {1})"),
    aten.any: ("false", "({0} | {1})"),
    aten.mean: ("0", "({0} + {1})"),
    aten.sum: ("0", "({0} + {1})"),
}
WORTH_ROUNDING = 2**14  # numbers; below, a matrix gains nothing from 8 bits, and its errors weigh more
QUANTISED_HEAD = 64  # bytes before a quantised vector: its scale and its zero


class Packed(NamedTuple):
    """A constant matrix (inner, columns) in the form that a kernel reads."""

    matrix: Value
    form: str  # fp32 or int8


class Operations:
    """Writes one node after another; constant matrices of products are `packed`, as their kernels read them."""

    def __init__(self, writer: Writer, weights: str = "fp32"):
        self.writer, self.weights = writer, weights
        self.packed: list[Packed] = []
        self.quantised: dict[str, Value] = {}
        self.special: dict[Any, Callable[..., Any]] = {
            aten.cat: self.cat,
            aten.clamp: self.clamp,
            aten.convolution: self.convolution,
            aten.bmm: self.product,
            aten.mm: self.linear,
            aten.addmm: lambda bias, a, b: self.linear(a, b, bias),
            aten.embedding: lambda weight, index, *_: self.rows(weight, index),
            aten.index: self.index,
            aten.linalg_vector_norm: self.norm,
            aten.index_select: self.index_select,
            aten.split_with_sizes: self.split,
            aten.var: lambda *arguments, **keywords: self.var_mean(*arguments, **keywords)[0],
            aten.var_mean: self.var_mean,
        }

    def compute(self, node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The value of a node whose arguments are values and plain numbers."""
        packet: Any = getattr(node.target, "overloadpacket", node.target)
        result: Any = node.meta.get("val")
        if packet in self.special:
            return self.special[packet](*arguments, **keywords)
        if packet in REDUCTIONS:
            return self.reduction(packet, result.dtype, *arguments)
        if packet in COMPARISONS:
            kinds = [argument.layout if isinstance(argument, Value) else argument for argument in arguments]
            dtype = torch.result_type(*kinds)
            return self.pointwise(f"({{0}} {COMPARISONS[packet]} {{1}})", dtype, list(arguments), torch.bool)
        if is_view(node):
            return self.view(node.target, arguments)
        in_place = packet.__name__.endswith("_") and _alone(node.args[0])
        packet = getattr(aten, packet.__name__.removesuffix("_")) if in_place else packet
        if packet not in FORMULAS or (packet is aten.div and keywords.get("rounding_mode")):
            raise CannotCompile(f"operation {packet.__name__} is not known")
        formula = FORMULAS[packet]
        if keywords.get("alpha", 1) != 1:
            formula = formula.replace("{1}", f"{keywords['alpha']} * {{1}}")
        if packet is aten.where:
            chosen = [self.cast(argument, result.dtype) for argument in arguments[1:]]
            return self.pointwise(formula, None, [arguments[0], *chosen], result.dtype)
        arguments = tuple(argument for argument in arguments if isinstance(argument, Value | int | float))
        return self.pointwise(formula, result.dtype, list(arguments))

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
        target = self.writer.temporary(torch.broadcast_shapes(*(value.shape for value in values)), kind)
        self.writer.each(formula.format(*names), dtype, values, target)
        return target

    def cast(self, entry: Any, dtype: torch.dtype) -> Any:
        same = not isinstance(entry, Value) or entry.dtype == dtype
        return entry if same else self.pointwise("{0}", dtype, [entry])

    def contiguous(self, value: Value) -> Value:
        return value if value.layout.is_contiguous() else self.pointwise("{0}", value.dtype, [value])

    def view(self, target: Any, arguments: tuple[Any, ...]) -> Value:
        first, *rest = arguments
        try:
            return first._replace(layout=target(first.layout, *rest))
        except RuntimeError:  # a change of shape that these strides do not allow
            first = self.contiguous(first)
            return first._replace(layout=target(first.layout, *rest))

    def split(self, value: Value, sizes: list[int], axis: int = 0) -> list[Value]:
        return [value._replace(layout=part) for part in value.layout.split_with_sizes(sizes, axis)]

    def reduction(self, packet: Any, dtype: torch.dtype, value: Value, axes: Any = None, keep: bool = False) -> Value:
        dimensions = len(value.shape)
        axes = [axes] if isinstance(axes, int) else axes or range(dimensions)
        reduced = sorted({axis % dimensions for axis in axes})
        kept = [axis for axis in range(dimensions) if axis not in reduced]
        start, formula = REDUCTIONS[packet]
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

    def var_mean(
        self, value: Value, axes: Any = None, *, correction: float | None = None, keepdim: bool = False
    ) -> list[Value]:
        mean = self.reduction(aten.mean, value.dtype, value, axes, True)
        away = self.pointwise("({0} - {1})", value.dtype, [value, mean])
        total = self.reduction(aten.sum, value.dtype, self.pointwise("({0} * {0})", value.dtype, [away]), axes, True)
        count = math.prod(value.shape) // math.prod(total.shape) - (1 if correction is None else correction)
        variance = self.pointwise("({0} * {1})", value.dtype, [total, 1 / count if count > 0 else math.inf])
        results = [variance, mean]
        if not keepdim:
            axes = [axes] if isinstance(axes, int) else axes or list(range(len(value.shape)))
            results = [part._replace(layout=part.layout.squeeze(axes)) for part in results]
        return results

    def norm(self, value: Value, order: float = 2, axes: Any = None, keep: bool = False, **_: Any) -> Value:
        if order != 2:
            raise CannotCompile(f"a norm of order {order} is not known")
        total = self.reduction(aten.sum, value.dtype, self.pointwise("({0} * {0})", value.dtype, [value]), axes, keep)
        return self.pointwise("std::sqrt({0})", value.dtype, [total])

    def clamp(self, value: Value, low: float | None = None, high: float | None = None) -> Value:
        lower = value if low is None else self.pointwise("larger({0}, {1})", value.dtype, [value, low])
        return lower if high is None else self.pointwise("smaller({0}, {1})", value.dtype, [lower, high])

    def cat(self, values: list[Value], axis: int = 0) -> Value:
        values = [value for value in values if value.shape != (0,)]
        shape = torch.cat([value.layout for value in values], axis).shape
        target, start = self.writer.temporary(shape, values[0].dtype), 0
        for value in values:
            size = value.shape[axis]
            part = target._replace(layout=target.layout.narrow(axis, start, size))
            self.writer.each("{0}", value.dtype, [value], part)
            start += size
        return target

    def append(self, parts: list[Value], slide: Slide) -> Value:
        """New places behind a window, in its own memory."""
        old, new = parts
        end = old._replace(layout=old.layout.narrow(slide.axis, slide.places, slide.added))
        self.writer.each("{0}", new.dtype, [new], end)
        self.writer.alive.add(old.buffer)
        return old._replace(layout=old.layout.narrow(slide.axis, 0, slide.places + slide.added))

    def rows(self, weight: Value, index: Value) -> Value:
        """`weight[index]`, along the first axis."""
        shape = (*index.shape, *weight.shape[1:])
        target = self.writer.temporary(shape, weight.dtype)
        places, row = math.prod(index.shape), math.prod(weight.shape[1:])
        weight, index = self.contiguous(weight), self.contiguous(index)
        text = (
            f"take_rows({weight.pointer()}, {weight.shape[0]}, {row}, {index.pointer()}, {places}, {target.pointer()});"
        )
        self.writer.call(text, [weight, index])
        return target

    def index(self, value: Value, indices: list[Value | None]) -> Value:
        given = [axis for axis, index in enumerate(indices) if index is not None]
        if len(given) != 1 or indices[given[0]].dtype != torch.int64:  # type: ignore[union-attr]
            raise CannotCompile("indexing by several tensors at once is not known")
        return self.index_select(value, given[0], indices[given[0]])  # type: ignore[arg-type]

    def index_select(self, value: Value, axis: int, index: Value) -> Value:
        found = self.rows(value._replace(layout=value.layout.movedim(axis, 0)), index)
        return found._replace(layout=found.layout.movedim(0, axis)) if len(index.shape) == 1 else found

    def linear(self, a: Value, b: Value, bias: Value | None = None) -> Value:
        """Rows times a matrix; if that is constant, by a kernel that reads it once, from one end to the other."""
        (rows, inner), columns = a.shape, b.shape[1]
        if b.buffer.kind != "weights" or a.dtype != torch.float32:
            result = self.product(a, b)
            return result if bias is None else self.pointwise("({0} + {1})", a.dtype, [bias, result])
        form = self.weights if inner * columns >= WORTH_ROUNDING else "fp32"
        a, name = self.contiguous(a), f"p{len(self.packed)}"
        self.packed.append(Packed(b, form))
        plain = None if bias is None else self.contiguous(bias.expand((columns,)) if len(bias.shape) < 2 else bias)
        target = self.writer.temporary((rows, columns), a.dtype)
        for row in range(rows):
            given = a._replace(layout=a.layout[row])
            reads = [given] if form == "fp32" else [self.quantise(given)]
            added = "nullptr"
            if plain is not None:
                reads.append(plain)
                added = (plain if len(plain.shape) == 1 else plain._replace(layout=plain.layout[row])).pointer()
            place = target._replace(layout=target.layout[row]).pointer()
            call = f"multiply_{form}({name}, {reads[0].pointer()}, {added}, {place}, {inner}, {columns});"
            self.writer.call(call, reads)
        return target

    def quantise(self, vector: Value) -> Value:
        """The vector in 8 bits, once for all products that read it."""
        source = f"{vector.pointer()}, {vector.shape[0]}"
        if source not in self.quantised:
            target = self.writer.temporary((QUANTISED_HEAD + -(-vector.shape[0] // 4) * 4,), torch.uint8)
            self.writer.call(f"quantise({source}, {target.pointer()});", [vector])
            self.quantised[source] = target
        return self.quantised[source]

    def product(self, a: Value, b: Value) -> Value:
        """Matrices, or batches of them, none of which is known before."""
        if a.dtype not in (torch.float32, torch.float64):
            raise CannotCompile(f"a product of {str(a.dtype).removeprefix('torch.')} is not known")
        if len(a.shape) == 2:
            whole = self.product(*(part._replace(layout=part.layout.unsqueeze(0)) for part in (a, b)))
            return whole._replace(layout=whole.layout.squeeze(0))
        (batch, rows, inner), columns = a.shape, b.shape[2]
        target = self.writer.temporary((batch, rows, columns), a.dtype)
        sizes = ", ".join(map(str, (batch, rows, inner, columns, *a.layout.stride(), *b.layout.stride())))
        self.writer.call(f"product({a.pointer()}, {b.pointer()}, {target.pointer()}, {sizes});", [a, b])
        return target

    def convolution(
        self,
        value: Value,
        weight: Value,
        bias: Value | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        transposed: bool,
        output_padding: list[int],
        groups: int,
    ) -> Value:
        """Of a window as long as the kernel reaches: one product, or one for each channel."""
        batch, channels, time = value.shape
        count, inner, size = weight.shape
        if (
            transposed
            or any(padding)
            or len(value.shape) != 3
            or time != (size - 1) * dilation[0] + 1
            or groups not in (1, channels)
        ):
            raise CannotCompile("a convolution with more than one result is not known")
        seen = value._replace(layout=value.layout[:, :, :: dilation[0]])
        if groups == 1:
            flat = self.contiguous(seen)
            flat = flat._replace(layout=flat.layout.view(batch, channels * size))
            result = self.linear(flat, weight._replace(layout=weight.layout.view(count, inner * size).t()), bias)
            return result._replace(layout=result.layout.unsqueeze(2))
        else:
            if count != channels:
                raise CannotCompile("a convolution with several results for each channel is not known")
            each = weight._replace(layout=weight.layout.view(1, channels, size))
            result = self.reduction(
                aten.sum, value.dtype, self.pointwise("({0} * {1})", value.dtype, [seen, each]), [2]
            )
        if bias is not None:
            result = self.pointwise("({0} + {1})", value.dtype, [result, bias])
        return result._replace(layout=result.layout.unsqueeze(2))


def literal(number: float, dtype: torch.dtype) -> str:
    """A number as C writes it, in the given type."""
    if math.isinf(number):
        return "-INFINITY" if number < 0 else "INFINITY"
    if math.isnan(number):
        return "NAN"
    text = repr(int(number)) if not (dtype.is_floating_point or dtype.is_complex) else repr(float(number))
    return f"({c_type(dtype)}){text}"


def is_view(node: fx.Node) -> bool:
    """Whether a node only looks at its first argument in another way."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments or schema.arguments[0].alias_info is None:
        return False
    return not schema.arguments[0].alias_info.is_write


def _alone(node: Any) -> bool:
    """Whether changing a value in place is the same as making a new one: nobody else has it."""
    return isinstance(node, fx.Node) and len(node.users) == 1 and node.op == "call_function" and not is_view(node)
