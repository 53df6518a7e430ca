"""What each operation of a traced step does to parts; names are those of ATen."""

from collections.abc import Callable
from typing import Any

import numpy as np

from elman.compiler.errors import CannotCompile
from elman.compiler.pointwise import COMPUTED
from elman.compiler.symbolic import Parts, Reader, Traced, Weight


def operate(reader: Reader, node: Traced) -> None:
    """Computes one node of the graph; what is not known here cannot be compiled."""
    name = name_of(node)
    if name == "getitem":
        reader.values[node] = reader.values[node.args[0]][node.args[1]]
    elif name in READERS:
        reader.values[node] = READERS[name](reader, node)
    elif name in COMPUTED:
        if node.kwargs:  # a way to round, say
            raise CannotCompile(f"its step uses {name} with {', '.join(map(str, node.kwargs.values()))}")
        reader.values[node] = reader.pointwise(name, *node.args)
    else:
        raise CannotCompile(f"its step uses {name}, which no kernel of ours knows")


def name_of(node: Traced) -> str:
    """ "add" of "aten.add.Tensor"."""
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _same(reader: Reader, node: Traced) -> Any:
    value = reader.values[node.args[0]]
    kind = node.meta["val"].dtype
    if not kind.is_floating_point or kind.itemsize < 4:
        raise CannotCompile(f"its step turns numbers into {kind}")
    return value


def _view(reader: Reader, node: Traced) -> Parts:
    return reader.reshaped(node, reader.parts(node.args[0]))


def _expand(reader: Reader, node: Traced) -> Parts:
    value = reader.parts(node.args[0])
    shape = tuple(node.meta["val"].shape)[1 if value.batched else 0 :]
    if value.wide:
        shape = (*shape[:-1], shape[-1] // reader.size)
    return value._replace(nodes=np.array(np.broadcast_to(value.nodes, shape)))


def _permute(reader: Reader, node: Traced) -> Weight:
    value = reader.values[node.args[0]]
    if not isinstance(value, Weight):
        raise CannotCompile("it exchanges axes of something that is no matrix")
    return value._replace(flipped=not value.flipped)


def _split(reader: Reader, node: Traced) -> list[Any]:
    source, sizes, *rest = node.args
    dim = rest[0] if rest else node.kwargs.get("dim", 0)
    length = source.meta["val"].shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
    ends = np.cumsum(sizes).tolist()
    return [reader.cut(source, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _slice(reader: Reader, node: Traced) -> Any:
    given: list[Any] = [*node.args, *[0, None, None, 1][len(node.args) - 1 :]]
    source, dim, start, stop, step = given
    length = source.meta["val"].shape[dim]
    if step != 1:
        raise CannotCompile("it takes every other unit")
    start, stop, _ = slice(start, stop).indices(length)
    if (start, stop) == (0, length):
        return reader.values[source]
    return reader.cut(source, dim, start, stop)


def _select(reader: Reader, node: Traced) -> Parts:
    source, dim, index = node.args
    value, axis = reader.axis(source, dim)
    if value.wide and axis == value.nodes.ndim - 1:
        raise CannotCompile("it picks out a single unit")
    return value._replace(nodes=value.nodes.take(index, axis=axis))


def _cat(reader: Reader, node: Traced) -> Parts:
    sources, *rest = node.args
    _, axis = reader.axis(sources[0], rest[0] if rest else 0)
    values = [reader.parts(source) for source in sources]
    if len({(value.wide, value.batched) for value in values}) > 1:
        raise CannotCompile("it joins tensors of different kinds")
    return values[0]._replace(nodes=np.concatenate([value.nodes for value in values], axis=axis))


def _mm(reader: Reader, node: Traced) -> Parts:
    return reader.product(*node.args)


def _addmm(reader: Reader, node: Traced) -> Parts:
    if node.kwargs:
        raise CannotCompile("it scales what it adds to a product")
    bias, past, weight = node.args
    return reader.combined(reader.builder.add, reader.parts(bias), reader.product(past, weight))


def _sum(reader: Reader, node: Traced) -> Parts:
    value, axes = reader.reduced(node.args[0], node.args[1] if len(node.args) > 1 else None)
    return reader.reshaped(node, reader.total(value, axes))


def _mean(reader: Reader, node: Traced) -> Parts:
    value, axes = reader.reduced(node.args[0], node.args[1] if len(node.args) > 1 else None)
    return reader.reshaped(node, reader.mean(value, axes))


def _var_mean(reader: Reader, node: Traced) -> list[Parts]:
    """Both from two sums that travel together, which loses digits where means are large; or one after the other."""
    if node.kwargs.get("correction", 1) != 0 or not node.kwargs.get("keepdim"):
        raise CannotCompile("it takes a variance other than that of layer norm")
    b = reader.builder
    value, axes = reader.reduced(node.args[0], node.args[1])
    mean = reader.mean(value, axes)
    if reader.careful:
        away = reader.combined(b.sub, value, mean)
        return [reader.mean(reader.combined(lambda one: b.mul(one, one), away), axes), mean]
    of_squares = reader.mean(reader.combined(lambda one: b.mul(one, one), value), axes)

    def variance(of_squares: int, mean: int) -> int:
        return b.node("maximum", b.sub(of_squares, b.mul(mean, mean)), b.constant(0))

    return [reader.combined(variance, of_squares, mean), mean]


def _full(reader: Reader, node: Traced) -> Parts:
    """A tensor of one number throughout."""
    name = name_of(node)
    number = 0.0 if "zeros" in name else 1.0 if "ones" in name else node.args[0] if "scalar" in name else node.args[1]
    shape = tuple(node.meta["val"].shape)
    batched = bool(shape) and shape[0] == reader.rows
    counts = list(shape[1:] if batched else shape)
    wide = bool(counts) and counts[-1] % reader.size == 0
    if wide:
        counts[-1] //= reader.size
    return Parts(np.full(counts, reader.builder.constant(number)), wide, batched)


def _scaled_sum(op: str) -> Callable[[Reader, Traced], Parts]:
    def read(reader: Reader, node: Traced) -> Parts:
        first, second = reader.parts(node.args[0]), reader.parts(node.args[1])
        factor = node.kwargs.get("alpha", 1)
        second = reader.combined(lambda one: reader.builder.times(one, factor), second)
        return reader.combined(getattr(reader.builder, op), first, second)

    return read


def _mul(reader: Reader, node: Traced) -> Parts:
    return reader.combined(reader.builder.mul, *(reader.parts(arg) for arg in node.args))


def _pow(reader: Reader, node: Traced) -> Parts:
    base, power = node.args
    b = reader.builder
    known: dict[Any, Callable[[int], int]] = {
        2: lambda one: b.mul(one, one),
        3: lambda one: b.mul(one, b.mul(one, one)),
        0.5: lambda one: b.node("sqrt", one),
        -0.5: lambda one: b.node("rsqrt", one),
        -1: lambda one: b.node("reciprocal", one),
    }
    if power not in known:
        raise CannotCompile(f"it takes the power {power}")
    return reader.combined(known[power], reader.parts(base))


def _clamp(reader: Reader, node: Traced) -> Parts:
    value, low, high = [*node.args, None, None][:3]
    result = reader.parts(value)
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            limit = reader.parts(bound)
            result = reader.combined(lambda a, b, op=op: reader.builder.node(op, a, b), result, limit)
    return result


def _leaky(reader: Reader, node: Traced) -> Parts:
    slope = node.args[1] if len(node.args) > 1 else 0.01
    b = reader.builder

    def leak(one: int) -> int:
        return b.node("where", b.node("gt", one, b.constant(0)), one, b.times(one, slope))

    return reader.combined(leak, reader.parts(node.args[0]))


def _elu(reader: Reader, node: Traced) -> Parts:
    given: list[Any] = [*node.args[1:], 1.0, 1.0, 1.0]
    alpha, scale, inner = given[:3]
    b = reader.builder

    def bend(one: int) -> int:
        low = b.times(b.node("expm1", b.times(one, inner)), alpha * scale)
        return b.node("where", b.node("gt", one, b.constant(0)), b.times(one, scale), low)

    return reader.combined(bend, reader.parts(node.args[0]))


READERS: dict[str, Callable[[Reader, Traced], Any]] = {
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
    "mm": _mm,
    "addmm": _addmm,
    "sum": _sum,
    "mean": _mean,
    "var_mean": _var_mean,
    "add": _scaled_sum("add"),
    "sub": _scaled_sum("sub"),
    "mul": _mul,
    "pow": _pow,
    "leaky_relu": _leaky,
    "elu": _elu,
}
