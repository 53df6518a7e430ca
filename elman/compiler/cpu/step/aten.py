"""What each operation of torch's core set is in C: most are a formula for one number, the rest a few lines here."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from elman.compiler.cpu.step.buffers import Value
from elman.compiler.cpu.step.builder import REDUCTIONS
from elman.compiler.cpu.step.loops import LoopWriter
from elman.compiler.cpu.step.matmul import Products
from elman.compiler.cpu.step.sliding_window import Slide
from elman.compiler.errors import CannotCompile

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


class Operations(Products):
    """Writes one node of a graph after another."""

    def __init__(self, writer: LoopWriter, weights: str = "fp32"):
        super().__init__(writer, weights)
        self.special: dict[Any, Callable[..., Any]] = {
            aten.cat: self.cat,
            aten.clamp: self.clamp,
            aten.convolution: self.convolution,
            aten.bmm: self.product,
            aten.mm: self.linear,
            aten.addmm: lambda bias, a, b: self.linear(a, b, bias),
            aten.embedding: lambda weight, index, *_: self.rows(weight, index),
            aten.gather: self.gather,
            aten.index: self.index,
            aten.linalg_vector_norm: self.norm,
            aten.index_select: self.index_select,
            aten.topk: self.topk,
            aten.var: lambda *arguments, **keywords: self.var_mean(*arguments, **keywords)[0],
            aten.var_mean: self.var_mean,
        }

    def compute(self, node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The value of a node whose arguments are values and plain numbers."""
        packet: Any = getattr(node.target, "overloadpacket", node.target)
        try:
            found = self._compute(node, packet, node.meta.get("val"), arguments, keywords)
        except TypeError as error:
            raise CannotCompile(f"operation {packet.__name__} is not known with these settings") from error
        if isinstance(found, Value) and (found.layout.shape, found.dtype) != _form(node):
            raise CannotCompile(f"operation {packet.__name__} is not known with these settings")
        return found

    def _compute(
        self, node: fx.Node, packet: Any, result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
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
        by_bits = packet is aten.bitwise_not and result.dtype != torch.bool
        if packet not in FORMULAS or keywords.get("rounding_mode") or by_bits:
            raise CannotCompile(f"operation {packet.__name__} is not known")
        formula = FORMULAS[packet]
        if keywords.get("alpha", 1) != 1:
            formula = formula.replace("{1}", f"{keywords['alpha']} * {{1}}")
        if packet is aten.where:
            chosen = [self.cast(argument, result.dtype) for argument in arguments[1:]]
            return self.pointwise(formula, None, [arguments[0], *chosen], result.dtype)
        arguments = tuple(argument for argument in arguments if isinstance(argument, Value | int | float))
        return self.pointwise(formula, result.dtype, list(arguments))

    def view(self, target: Any, arguments: tuple[Any, ...]) -> Any:
        """The same numbers seen in another way, or in parts."""
        first, *rest = arguments
        try:
            found = target(first.layout, *rest)
        except RuntimeError:  # a change of shape that these strides do not allow
            first = self.contiguous(first)
            found = target(first.layout, *rest)
        if isinstance(found, torch.Tensor):
            return first._replace(layout=found)
        return [first._replace(layout=part) for part in found]

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
        self.writer.call(text, [weight, index], target)
        self.note_choice(weight, index, target)
        return target

    def gather(self, value: Value, axis: int, index: Value) -> Value:
        if axis % len(value.shape) != len(value.shape) - 1 or value.shape[:-1] != index.shape[:-1]:
            raise CannotCompile("gathering along another axis than the last is not known")
        target = self.writer.temporary(index.shape, value.dtype)
        value, index = self.contiguous(value), self.contiguous(index)
        sizes = f"{math.prod(value.shape[:-1])}, {value.shape[-1]}"
        text = f"take_places({value.pointer()}, {sizes}, {index.pointer()}, {index.shape[-1]}, {target.pointer()});"
        self.writer.call(text, [value, index])
        return target

    def topk(self, value: Value, count: int, axis: int = -1, largest: bool = True, sort: bool = True) -> list[Value]:
        if axis % len(value.shape) != len(value.shape) - 1 or not largest:
            raise CannotCompile("the least numbers, or those along another axis than the last, are not known")
        shape = (*value.shape[:-1], count)
        values, places = (self.writer.temporary(shape, dtype) for dtype in (value.dtype, torch.int64))
        value = self.contiguous(value)
        sizes = f"{math.prod(value.shape[:-1])}, {value.shape[-1]}, {count}"
        self.writer.call(
            f"take_largest({value.pointer()}, {sizes}, {values.pointer()}, {places.pointer()});", [value, values]
        )
        return [values, places]

    def index(self, value: Value, indices: list[Value | None]) -> Value:
        given = [axis for axis, index in enumerate(indices) if index is not None]
        if len(given) != 1 or indices[given[0]].dtype != torch.int64:  # type: ignore[union-attr]
            raise CannotCompile("indexing by several tensors at once is not known")
        return self.index_select(value, given[0], indices[given[0]])  # type: ignore[arg-type]

    def index_select(self, value: Value, axis: int, index: Value) -> Value:
        found = self.rows(value._replace(layout=value.layout.movedim(axis, 0)), index)
        return found._replace(layout=found.layout.movedim(0, axis)) if len(index.shape) == 1 else found


def is_view(node: fx.Node) -> bool:
    """Whether a node only looks at its first argument in another way."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments or schema.arguments[0].alias_info is None:
        return False
    return not schema.arguments[0].alias_info.is_write


def _alone(node: Any) -> bool:
    """Whether changing a value in place is the same as making a new one: nobody else has it."""
    return isinstance(node, fx.Node) and len(node.users) == 1 and node.op == "call_function" and not is_view(node)


def _form(node: fx.Node) -> tuple[torch.Size, torch.dtype]:
    return node.meta["val"].shape, node.meta["val"].dtype
