"""Lowers ATen operations to C++: most are one expression per element, the others call kernels.h."""

import math
from typing import Any

import torch
from torch import fx

from elman.compiler.cpu.build import COMPARISONS, EXPRESSIONS
from elman.compiler.cpu.step.buffers import SlidingWindow, Value
from elman.compiler.cpu.step.loops import REDUCTIONS
from elman.compiler.cpu.step.matmul import MatmulOps
from elman.compiler.errors import CannotCompile


class AtenLowering(MatmulOps):
    """Lowers one node of the traced graph after another; `lower_NAME(*arguments)` does it for the operation NAME."""

    def lower(self, node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The value of a node; its arguments are values and Python numbers."""
        name = getattr(node.target, "overloadpacket", node.target).__name__  # type: ignore[union-attr]
        result: Any = node.meta.get("val")
        try:
            value = self._lower(node, name, arguments, keywords)
        except TypeError as error:
            raise CannotCompile(f"operation {name} is not supported with these arguments") from error
        if isinstance(value, Value) and (value.layout.shape, value.dtype) != (result.shape, result.dtype):
            raise CannotCompile(f"operation {name} is not supported with these arguments")
        return value

    def _lower(self, node: fx.Node, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        result: Any = node.meta.get("val")
        if hasattr(self, f"lower_{name}"):
            return getattr(self, f"lower_{name}")(*arguments, **keywords)
        if name in REDUCTIONS:
            return self.fuser.reduction(name, result.dtype, *arguments)
        if name in COMPARISONS:
            operands = [argument.layout if isinstance(argument, Value) else argument for argument in arguments]
            dtype = torch.result_type(*operands)
            return self.fuser.pointwise(f"({{0}} {COMPARISONS[name]} {{1}})", dtype, list(arguments), torch.bool)
        if is_view(node):
            return self.view(node.target, arguments)
        if name.endswith("_") and _unaliased(node.args[0]):  # in place: the same as out of place
            name = name.removesuffix("_")
        bitwise = name == "bitwise_not" and result.dtype != torch.bool
        if name not in EXPRESSIONS or keywords.get("rounding_mode") or bitwise:
            raise CannotCompile(f"operation {name} is not supported")
        expression = EXPRESSIONS[name]
        if keywords.get("alpha", 1) != 1:
            expression = expression.replace("{1}", f"{keywords['alpha']} * {{1}}")
        if name == "where":
            branches = [self.fuser.cast(argument, result.dtype) for argument in arguments[1:]]
            return self.fuser.pointwise(expression, None, [arguments[0], *branches], result.dtype)
        operands = [argument for argument in arguments if isinstance(argument, Value | int | float)]
        return self.fuser.pointwise(expression, result.dtype, operands)

    def view(self, target: Any, arguments: tuple[Any, ...]) -> Any:
        """A view operation, applied to the layout."""
        first, *rest = arguments
        try:
            view = target(first.layout, *rest)
        except RuntimeError:  # these strides do not allow the new shape
            first = self.fuser.contiguous(first)
            view = target(first.layout, *rest)
        if isinstance(view, torch.Tensor):
            return first._replace(layout=view)
        return [first._replace(layout=part) for part in view]

    def lower_var_mean(
        self, value: Value, axes: Any = None, correction: Any = None, keepdim: bool = False
    ) -> list[Value]:
        mean = self.fuser.reduction("mean", value.dtype, value, axes, True)
        centred = self.fuser.pointwise("({0} - {1})", value.dtype, [value, mean])
        total = self.sum_of_squares(centred, axes, True)
        count = math.prod(value.shape) // math.prod(total.shape) - (1 if correction is None else correction)
        variance = self.fuser.pointwise("({0} * {1})", value.dtype, [total, 1 / count if count > 0 else math.inf])
        results = [variance, mean]
        if not keepdim:
            axes = [axes] if isinstance(axes, int) else axes or list(range(len(value.shape)))
            results = [part._replace(layout=part.layout.squeeze(axes)) for part in results]
        return results

    def lower_var(self, *arguments: Any, **keywords: Any) -> Value:
        return self.lower_var_mean(*arguments, **keywords)[0]

    def sum_of_squares(self, value: Value, axes: Any = None, keepdim: bool = False) -> Value:
        squares = self.fuser.pointwise("({0} * {0})", value.dtype, [value])
        return self.fuser.reduction("sum", value.dtype, squares, axes, keepdim)

    def lower_linalg_vector_norm(self, value: Value, order: float = 2, *axes: Any, **_: Any) -> Value:
        if order != 2:
            raise CannotCompile(f"a norm of order {order} is not supported")
        total = self.sum_of_squares(value, *axes)
        return self.fuser.pointwise("std::sqrt({0})", value.dtype, [total])

    def lower_clamp(self, value: Value, low: float | None = None, high: float | None = None) -> Value:
        lower = value if low is None else self.fuser.pointwise("larger({0}, {1})", value.dtype, [value, low])
        return lower if high is None else self.fuser.pointwise("smaller({0}, {1})", value.dtype, [lower, high])

    def lower_cat(self, values: list[Value], axis: int = 0) -> Value:
        values = [value for value in values if value.shape != (0,)]
        shape = torch.cat([value.layout for value in values], axis).shape
        target, start = self.fuser.temporary(shape, values[0].dtype), 0
        for value in values:
            size = value.shape[axis]
            part = target._replace(layout=target.layout.narrow(axis, start, size))
            self.fuser.assign("{0}", value.dtype, [value], part)
            start += size
        return target

    def append(self, parts: list[Value], window: SlidingWindow) -> Value:
        """Appends new positions to a sliding window, in the window's own memory."""
        old, new = parts
        end = old._replace(layout=old.layout.narrow(window.axis, window.length, window.added))
        self.fuser.assign("{0}", new.dtype, [new], end)
        self.fuser.live.add(old.buffer)
        return old._replace(layout=old.layout.narrow(window.axis, 0, window.length + window.added))

    def gather_rows(self, weight: Value, index: Value, *_: Any) -> Value:
        """`weight[index]`, along the first axis."""
        if not weight.shape[0]:
            raise CannotCompile("a table without rows cannot be indexed")
        shape = (*index.shape, *weight.shape[1:])
        target = self.fuser.temporary(shape, weight.dtype)
        count, row = math.prod(index.shape), math.prod(weight.shape[1:])
        weight, index = self.fuser.contiguous(weight), self.fuser.contiguous(index)
        sizes = f"{weight.shape[0]}, {row}, {index.pointer()}, {count}"
        text = f"gather_rows({weight.pointer()}, {sizes}, {target.pointer()});"
        self.fuser.call(text, [weight, index], target)
        self.note_gather(weight, index, target)
        return target

    def lower_embedding(self, weight: Value, index: Value, *_: Any) -> Value:
        if (table := self.rounded_table(weight)) is None:
            return self.gather_rows(weight, index)
        count, (rows, size) = math.prod(index.shape), weight.shape
        target, index = self.fuser.temporary((*index.shape, size), weight.dtype), self.fuser.contiguous(index)
        arguments = f"{table}, {rows}, {size}, {index.pointer()}, {count}, {target.pointer()}"
        self.fuser.call(f"gather_rounded({arguments});", [index], target)
        return target

    def lower_gather(self, value: Value, axis: int, index: Value) -> Value:
        if axis % len(value.shape) != len(value.shape) - 1 or value.shape[:-1] != index.shape[:-1]:
            raise CannotCompile("gather along another axis than the last is not supported")
        target = self.fuser.temporary(index.shape, value.dtype)
        value, index = self.fuser.contiguous(value), self.fuser.contiguous(index)
        sizes = f"{math.prod(value.shape[:-1])}, {value.shape[-1]}"
        text = f"gather({value.pointer()}, {sizes}, {index.pointer()}, {index.shape[-1]}, {target.pointer()});"
        self.fuser.call(text, [value, index])
        return target

    def lower_topk(self, value: Value, count: int, axis: int = -1, largest: bool = True, *_: Any) -> list[Value]:
        if axis % len(value.shape) != len(value.shape) - 1 or not largest:
            raise CannotCompile("topk of the smallest values, or along another axis than the last, is not supported")
        shape = (*value.shape[:-1], count)
        values, indices = (self.fuser.temporary(shape, dtype) for dtype in (value.dtype, torch.int64))
        value = self.fuser.contiguous(value)
        sizes = f"{math.prod(value.shape[:-1])}, {value.shape[-1]}, {count}"
        self.fuser.call(f"topk({value.pointer()}, {sizes}, {values.pointer()}, {indices.pointer()});", [value, values])
        return [values, indices]

    def lower_index(self, value: Value, indices: list[Value | None]) -> Value:
        axes = [axis for axis, index in enumerate(indices) if index is not None]
        if len(axes) != 1 or indices[axes[0]].dtype != torch.int64:  # type: ignore[union-attr]
            raise CannotCompile("indexing by several tensors at once, or by a mask, is not supported")
        return self.lower_index_select(value, axes[0], indices[axes[0]])  # type: ignore[arg-type]

    def lower_index_select(self, value: Value, axis: int, index: Value) -> Value:
        rows = self.gather_rows(value._replace(layout=value.layout.movedim(axis, 0)), index)
        return rows._replace(layout=rows.layout.movedim(0, axis)) if len(index.shape) == 1 else rows


def is_view(node: fx.Node) -> bool:
    """Whether the result of a node is a view of its first argument."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments or schema.arguments[0].alias_info is None:
        return False
    return not schema.arguments[0].alias_info.is_write


def _unaliased(node: Any) -> bool:
    """Whether nothing else reads the memory of this value, so that an in-place operation may be out of place."""
    return isinstance(node, fx.Node) and len(node.users) == 1 and node.op == "call_function" and not is_view(node)
