"""Lowering of ATen operations to the IR: a function for each, on symbolic tensors; element-wise ones share a table."""

from collections.abc import Callable
from typing import Any

import numpy as np

from elman.compiler.errors import CannotCompile
from elman.compiler.interpreter import TORCH_FUNCTIONS
from elman.compiler.symbolic import SymbolicInterpreter, SymbolicTensor, Traced, WeightView

Lowering = Callable[..., Any]


def lower_node(interpreter: SymbolicInterpreter, node: Traced) -> None:
    """Executes one node of the traced graph symbolically; an operation not listed here cannot be compiled."""
    name, values = name_of(node), interpreter.values
    if name == "getitem":
        values[node] = values[node.args[0]][node.args[1]]
    elif name in LOWERINGS:
        values[node] = LOWERINGS[name](interpreter, node, *node.args, **node.kwargs)
    elif name in TORCH_FUNCTIONS:
        if node.kwargs:  # rounding_mode, for example
            raise CannotCompile(f"its step uses {name} with {', '.join(map(str, node.kwargs.values()))}")
        values[node] = interpreter.pointwise(name, *node.args)
    else:
        raise CannotCompile(f"its step uses {name}, which the compiler does not support")


def name_of(node: Traced) -> str:
    """ "add" of "aten.add.Tensor"."""
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


# Each takes the interpreter, the node, and the arguments of the ATen operation.


def _same(interpreter: SymbolicInterpreter, node: Traced, source: Traced, **_: Any) -> Any:
    dtype = node.meta["val"].dtype
    if not dtype.is_floating_point or dtype.itemsize < 4:
        raise CannotCompile(f"its step casts to {dtype}")
    return interpreter.values[source]


def _view(interpreter: SymbolicInterpreter, node: Traced, source: Traced, *_: Any) -> SymbolicTensor:
    return interpreter.reshape(node, interpreter.tensor(source))


def _expand(interpreter: SymbolicInterpreter, node: Traced, source: Traced, *_: Any) -> SymbolicTensor:
    value = interpreter.tensor(source)
    shape = tuple(node.meta["val"].shape)[1 if value.batched else 0 :]
    if value.wide:
        shape = (*shape[:-1], shape[-1] // interpreter.size)
    return value._replace(nodes=np.array(np.broadcast_to(value.nodes, shape)))


def _permute(interpreter: SymbolicInterpreter, node: Traced, source: Traced, *_: Any) -> WeightView:
    value = interpreter.values[source]
    if not isinstance(value, WeightView):
        raise CannotCompile("it transposes something that is no matrix")
    return value._replace(flipped=not value.flipped)


def _split(interpreter: SymbolicInterpreter, node: Traced, source: Traced, sizes: Any, dim: int = 0) -> list[Any]:
    length = source.meta["val"].shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
    ends = np.cumsum(sizes).tolist()
    return [interpreter.slice(source, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _slice(
    interpreter: SymbolicInterpreter,
    node: Traced,
    source: Traced,
    dim: int = 0,
    start: Any = None,
    stop: Any = None,
    step: int = 1,
) -> Any:
    if step != 1:
        raise CannotCompile("it slices with a step")
    length = source.meta["val"].shape[dim]
    start, stop, _ = slice(start, stop).indices(length)
    return interpreter.values[source] if stop - start == length else interpreter.slice(source, dim, start, stop)


def _select(interpreter: SymbolicInterpreter, node: Traced, source: Traced, dim: int, index: int) -> SymbolicTensor:
    value, axis = interpreter.axis(source, dim)
    if value.wide and axis == value.nodes.ndim - 1:
        raise CannotCompile("it selects a single unit")
    return value._replace(nodes=value.nodes.take(index, axis=axis))


def _cat(interpreter: SymbolicInterpreter, node: Traced, sources: list[Traced], dim: int = 0) -> SymbolicTensor:
    _, axis = interpreter.axis(sources[0], dim)
    values = [interpreter.tensor(source) for source in sources]
    if len({(value.wide, value.batched) for value in values}) > 1:
        raise CannotCompile("it concatenates tensors that differ in batch or units")
    return values[0]._replace(nodes=np.concatenate([value.nodes for value in values], axis=axis))


def _addmm(
    interpreter: SymbolicInterpreter, node: Traced, bias: Traced, past: Traced, weight: Traced, **factors: Any
) -> SymbolicTensor:
    if factors:
        raise CannotCompile("its addmm has alpha or beta")
    return interpreter.map(interpreter.builder.add, bias, interpreter.matmul(past, weight))


def _reduction(op: str) -> Lowering:
    def lower(interpreter: SymbolicInterpreter, node: Traced, source: Traced, dims: Any = None, *_: Any) -> Any:
        return interpreter.reshape(node, getattr(interpreter, op)(*interpreter.reduced(source, dims)))

    return lower


def _var_mean(
    interpreter: SymbolicInterpreter,
    node: Traced,
    source: Traced,
    dims: Any = None,
    correction: Any = 1,
    keepdim: bool = False,
) -> list[SymbolicTensor]:
    """In two passes; or in one, mean(x²) - mean(x)², whose two sums are one synchronisation but cancel digits."""
    if correction != 0 or not keepdim:
        raise CannotCompile("its variance is not that of layer norm (correction=0, keepdim)")
    b = interpreter.builder
    value, axes = interpreter.reduced(source, dims)
    mean = interpreter.mean(value, axes)
    if interpreter.two_pass_variance:
        centred = interpreter.map(b.sub, value, mean)
        return [interpreter.mean(interpreter.map(lambda one: b.mul(one, one), centred), axes), mean]
    of_squares = interpreter.mean(interpreter.map(lambda one: b.mul(one, one), value), axes)

    def variance(of_squares: int, mean: int) -> int:
        return b.node("maximum", b.sub(of_squares, b.mul(mean, mean)), b.constant(0))

    return [interpreter.map(variance, of_squares, mean), mean]


def _full(interpreter: SymbolicInterpreter, node: Traced, *args: Any, **_: Any) -> SymbolicTensor:
    """A tensor filled with one value."""
    name = name_of(node)
    fill = 0.0 if "zeros" in name else 1.0 if "ones" in name else args[0] if "scalar" in name else args[1]
    shape = tuple(node.meta["val"].shape)
    batched = bool(shape) and shape[0] == interpreter.rows
    counts = list(shape[1:] if batched else shape)
    wide = bool(counts) and counts[-1] % interpreter.size == 0
    if wide:
        counts[-1] //= interpreter.size
    return SymbolicTensor(np.full(counts, interpreter.builder.constant(fill)), wide, batched)


def _scaled_sum(op: str) -> Lowering:
    def lower(interpreter: SymbolicInterpreter, node: Traced, a: Any, b: Any, alpha: float = 1) -> SymbolicTensor:
        scaled = interpreter.map(lambda one: interpreter.builder.scale(one, alpha), b)
        return interpreter.map(getattr(interpreter.builder, op), a, scaled)

    return lower


def _pow(interpreter: SymbolicInterpreter, node: Traced, base: Any, power: Any) -> SymbolicTensor:
    b = interpreter.builder
    known: dict[Any, Callable[[int], int]] = {
        2: lambda one: b.mul(one, one),
        3: lambda one: b.mul(one, b.mul(one, one)),
        0.5: lambda one: b.node("sqrt", one),
        -0.5: lambda one: b.node("rsqrt", one),
        -1: lambda one: b.node("reciprocal", one),
    }
    if power not in known:
        raise CannotCompile(f"it raises to the power {power}")
    return interpreter.map(known[power], base)


def _clamp(interpreter: SymbolicInterpreter, node: Traced, value: Any, low: Any = None, high: Any = None) -> Any:
    result = interpreter.tensor(value)
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            result = interpreter.pointwise(op, result, bound)
    return result


def _leaky(interpreter: SymbolicInterpreter, node: Traced, value: Any, slope: float = 0.01) -> SymbolicTensor:
    b = interpreter.builder

    def leak(one: int) -> int:
        return b.node("where", b.node("gt", one, b.constant(0)), one, b.scale(one, slope))

    return interpreter.map(leak, value)


def _elu(
    interpreter: SymbolicInterpreter, node: Traced, value: Any, alpha: float = 1, scale: float = 1, inner: float = 1
) -> SymbolicTensor:
    b = interpreter.builder

    def bend(one: int) -> int:
        low = b.scale(b.node("expm1", b.scale(one, inner)), alpha * scale)
        return b.node("where", b.node("gt", one, b.constant(0)), b.scale(one, scale), low)

    return interpreter.map(bend, value)


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(["_to_copy", "clone", "contiguous", "lift_fresh_copy"], _same),
    **dict.fromkeys(["view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"], _view),
    **dict.fromkeys(["full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "scalar_tensor"], _full),
    **dict.fromkeys(["split_with_sizes", "split"], _split),
    **dict.fromkeys(["permute", "t", "transpose"], _permute),
    **dict.fromkeys(["clamp", "hardtanh"], _clamp),
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "cat": _cat,
    "mm": lambda interpreter, node, *operands: interpreter.matmul(*operands),
    "addmm": _addmm,
    "sum": _reduction("sum"),
    "mean": _reduction("mean"),
    "var_mean": _var_mean,
    "add": _scaled_sum("add"),
    "sub": _scaled_sum("sub"),
    "mul": lambda interpreter, node, *operands: interpreter.map(interpreter.builder.mul, *operands),
    "pow": _pow,
    "leaky_relu": _leaky,
    "elu": _elu,
}
