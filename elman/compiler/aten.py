"""Lowering of ATen operations to the IR: a method for each, on symbolic tensors; element-wise ones share a table."""

from collections.abc import Callable
from typing import Any

import numpy as np

from elman.compiler.errors import CannotCompile
from elman.compiler.interpreter import TORCH_FUNCTIONS
from elman.compiler.symbolic import SymbolicInterpreter, SymbolicTensor, Traced, WeightView


class AtenInterpreter(SymbolicInterpreter):
    """Executes the traced graph symbolically. `lower_NAME(node, *arguments)` gives the value of the operation NAME."""

    def lower(self, node: Traced) -> None:
        """Executes one node; an operation that is not listed here cannot be compiled."""
        name, values = _name(node), self.values
        method = getattr(self, f"lower_{name}", None)
        if name == "getitem":
            values[node] = values[node.args[0]][node.args[1]]
        elif method is not None:
            values[node] = method(node, *node.args, **node.kwargs)
        elif name in TORCH_FUNCTIONS:
            if node.kwargs:  # rounding_mode, for example
                raise CannotCompile(f"its step uses {name} with {', '.join(map(str, node.kwargs.values()))}")
            values[node] = self.pointwise(name, *node.args)
        else:
            raise CannotCompile(f"its step uses {name}, which the compiler does not support")

    # views and copies

    def lower_clone(self, node: Traced, source: Traced, **_: Any) -> Any:
        dtype = node.meta["val"].dtype
        if not dtype.is_floating_point or dtype.itemsize < 4:
            raise CannotCompile(f"its step casts to {dtype}")
        return self.values[source]

    lower__to_copy = lower_contiguous = lower_lift_fresh_copy = lower_clone

    def lower_view(self, node: Traced, source: Traced, *_: Any) -> SymbolicTensor:
        return self.reshape(node, self.tensor(source))

    lower__unsafe_view = lower_reshape = lower_unsqueeze = lower_squeeze = lower_view

    def lower_expand(self, node: Traced, source: Traced, *_: Any) -> SymbolicTensor:
        value = self.tensor(source)
        shape = tuple(node.meta["val"].shape)[1 if value.batched else 0 :]
        if value.wide:
            shape = (*shape[:-1], shape[-1] // self.size)
        return value._replace(nodes=np.array(np.broadcast_to(value.nodes, shape)))

    def lower_permute(self, node: Traced, source: Traced, *_: Any) -> WeightView:
        value = self.values[source]
        if not isinstance(value, WeightView):
            raise CannotCompile("it transposes something that is no matrix")
        return value._replace(flipped=not value.flipped)

    lower_t = lower_transpose = lower_permute

    def lower_split(self, node: Traced, source: Traced, sizes: Any, dim: int = 0) -> list[Any]:
        length = source.meta["val"].shape[dim]
        if isinstance(sizes, int):
            sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
        ends = np.cumsum(sizes).tolist()
        return [self.slice(source, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]

    lower_split_with_sizes = lower_split

    def lower_slice(self, node: Traced, source: Traced, dim: int = 0, *bounds: Any) -> Any:
        padded: list[Any] = [*bounds, *(None, None, 1)[len(bounds) :]]
        start, stop, step = padded
        if step != 1:
            raise CannotCompile("it slices with a step")
        length = source.meta["val"].shape[dim]
        start, stop, _ = slice(start, stop).indices(length)
        return self.values[source] if stop - start == length else self.slice(source, dim, start, stop)

    def lower_select(self, node: Traced, source: Traced, dim: int, index: int) -> SymbolicTensor:
        value, axis = self.axis(source, dim)
        if value.wide and axis == value.nodes.ndim - 1:
            raise CannotCompile("it selects a single unit")
        return value._replace(nodes=value.nodes.take(index, axis=axis))

    def lower_cat(self, node: Traced, sources: list[Traced], dim: int = 0) -> SymbolicTensor:
        _, axis = self.axis(sources[0], dim)
        values = [self.tensor(source) for source in sources]
        if len({(value.wide, value.batched) for value in values}) > 1:
            raise CannotCompile("it concatenates tensors that differ in batch or units")
        return values[0]._replace(nodes=np.concatenate([value.nodes for value in values], axis=axis))

    def lower_full(self, node: Traced, *args: Any, **_: Any) -> SymbolicTensor:
        name = _name(node)
        fill = 0.0 if "zeros" in name else 1.0 if "ones" in name else args[0] if "scalar" in name else args[1]
        shape = tuple(node.meta["val"].shape)
        batched = bool(shape) and shape[0] == self.rows
        counts = list(shape[1:] if batched else shape)
        wide = bool(counts) and counts[-1] % self.size == 0
        if wide:
            counts[-1] //= self.size
        return SymbolicTensor(np.full(counts, self.builder.constant(fill)), wide, batched)

    lower_full_like = lower_zeros = lower_zeros_like = lower_ones = lower_ones_like = lower_scalar_tensor = lower_full

    # products and reductions

    def lower_mm(self, node: Traced, past: Traced, weight: Traced) -> SymbolicTensor:
        return self.matmul(past, weight)

    def lower_addmm(self, node: Traced, bias: Traced, past: Traced, weight: Traced, **factors: Any) -> SymbolicTensor:
        if factors:
            raise CannotCompile("its addmm has alpha or beta")
        return self.map(self.builder.add, bias, self.matmul(past, weight))

    def lower_sum(self, node: Traced, source: Traced, dims: Any = None, *_: Any) -> SymbolicTensor:
        return self.reshape(node, self.sum(*self.reduced(source, dims)))

    def lower_mean(self, node: Traced, source: Traced, dims: Any = None, *_: Any) -> SymbolicTensor:
        return self.reshape(node, self.mean(*self.reduced(source, dims)))

    def lower_var_mean(self, node: Traced, source: Traced, dims: Any = None, **options: Any) -> list[SymbolicTensor]:
        """In two passes; or in one, mean(x²) - mean(x)², whose two sums are one synchronisation but cancel digits."""
        if options.get("correction", 1) != 0 or not options.get("keepdim"):
            raise CannotCompile("its variance is not that of layer norm (correction=0, keepdim)")
        b = self.builder
        value, axes = self.reduced(source, dims)
        mean = self.mean(value, axes)
        if self.two_pass_variance:
            return [self.mean(self._square(self.map(b.sub, value, mean)), axes), mean]

        def variance(of_squares: int, mean: int) -> int:
            return b.node("maximum", b.sub(of_squares, b.mul(mean, mean)), b.constant(0))

        return [self.map(variance, self.mean(self._square(value), axes), mean), mean]

    # element-wise operations that are more than one node, or that IRBuilder simplifies

    def _square(self, value: Any) -> SymbolicTensor:
        return self.map(lambda one: self.builder.mul(one, one), value)

    def lower_add(self, node: Traced, a: Any, b: Any, alpha: float = 1) -> SymbolicTensor:
        return self.map(self.builder.add, a, self.map(lambda one: self.builder.scale(one, alpha), b))

    def lower_sub(self, node: Traced, a: Any, b: Any, alpha: float = 1) -> SymbolicTensor:
        return self.map(self.builder.sub, a, self.map(lambda one: self.builder.scale(one, alpha), b))

    def lower_mul(self, node: Traced, a: Any, b: Any) -> SymbolicTensor:
        return self.map(self.builder.mul, a, b)

    def lower_pow(self, node: Traced, base: Any, power: Any) -> SymbolicTensor:
        b = self.builder
        known: dict[Any, Callable[[int], int]] = {
            2: lambda one: b.mul(one, one),
            3: lambda one: b.mul(one, b.mul(one, one)),
            0.5: lambda one: b.node("sqrt", one),
            -0.5: lambda one: b.node("rsqrt", one),
            -1: lambda one: b.node("reciprocal", one),
        }
        if power not in known:
            raise CannotCompile(f"it raises to the power {power}")
        return self.map(known[power], base)

    def lower_clamp(self, node: Traced, value: Any, low: Any = None, high: Any = None) -> SymbolicTensor:
        result = self.tensor(value)
        for op, bound in (("maximum", low), ("minimum", high)):
            if bound is not None:
                result = self.pointwise(op, result, bound)
        return result

    lower_hardtanh = lower_clamp

    def lower_leaky_relu(self, node: Traced, value: Any, slope: float = 0.01) -> SymbolicTensor:
        b = self.builder

        def leak(one: int) -> int:
            return b.node("where", b.node("gt", one, b.constant(0)), one, b.scale(one, slope))

        return self.map(leak, value)

    def lower_elu(self, node: Traced, value: Any, alpha: Any = 1, scale: Any = 1, inner: Any = 1) -> SymbolicTensor:
        b = self.builder

        def bend(one: int) -> int:
            low = b.scale(b.node("expm1", b.scale(one, inner)), alpha * scale)
            return b.node("where", b.node("gt", one, b.constant(0)), b.scale(one, scale), low)

        return self.map(bend, value)


def _name(node: Traced) -> str:
    """ "add" of "aten.add.Tensor"."""
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]
