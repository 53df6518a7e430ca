"""From a cell to its unit program: the step is traced, and every tensor in it taken apart into parts of width H.

Views, splits and joins whose borders lie between parts disappear here. What does not fit raises `CannotCompile`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from elman.ops.recurrence.pointwise import COMPUTED
from elman.ops.recurrence.units import Builder, CannotCompile, Matrix, Program
from elman.ops.tracing import trace

BATCH = 7919  # rows of the example: a prime that no width is a multiple of, so a shape tells which axis is which


class Parts(NamedTuple):
    """A tensor as an array of nodes: its shape without the batch, the last axis counted in parts if it is wide."""

    nodes: np.ndarray
    wide: bool
    batched: bool


class Weight(NamedTuple):
    """A parameter that may be a matrix of square blocks; `first` is its first block of rows."""

    name: str
    blocks: tuple[int, int]
    first: int = 0
    flipped: bool = False  # seen from its other side


def read(cell: Any) -> Program:
    """The program of `cell.step`: loads are ("drive", part), what is given is the output."""
    graph, names, parts = _traced(cell)
    reader = _Reader(cell.hidden_size)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node, name in zip(inputs[: len(names)], names, strict=True):
        reader.parameter(node, name)
    reader.drive(inputs[len(names)])
    for number, node in enumerate(inputs[len(names) + 1 :]):
        reader.state(node, number)
    for node in graph.nodes:
        if node.op == "call_function":
            reader.operation(node)
        elif node.op == "get_attr":
            raise CannotCompile("its step holds a tensor that is neither parameter nor buffer")
    results = [reader.single(node) for node in list(graph.nodes)[-1].args[0]]
    if len(results) != parts + 1:
        raise CannotCompile(f"its step gives {len(results) - 1} parts of state for {parts}")
    output, *carried = results
    if len(set(carried)) < len(carried):
        raise CannotCompile("two parts of its state are always the same")
    return reader.builder.program(carried, [output])


class _Stepping(nn.Module):
    def __init__(self, cell: Any):
        super().__init__()
        self.cell = cell

    def forward(self, drive: Tensor, state: Any) -> Any:
        return self.cell.step(drive, state)


def _traced(cell: Any) -> tuple[fx.Graph, list[str], int]:
    """The graph, the names of its first inputs (parameters and buffers), and how many parts the state has."""
    kind = torch.float32
    known = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    values = {f"cell.{name}": torch.empty(value.shape, dtype=kind) for name, value in known.items()}
    stepping = _Stepping(cell)

    def step(values: dict[str, Tensor], drive: Tensor, state: Any) -> Any:
        return torch.func.functional_call(stepping, values, (drive, state))

    try:
        with _whole(cell), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            weight = next(iter(known.values()))
            example = cell.drive(torch.zeros(1, cell.input_size, dtype=weight.dtype, device=weight.device))
            drive = torch.empty(BATCH, *example.shape[1:], dtype=kind)
            old, form = pytree.tree_flatten(cell.initial_state(1))
            state = pytree.tree_unflatten([torch.empty(BATCH, *part.shape[1:], dtype=kind) for part in old], form)
            graph = trace(step, values, drive, state)
    except Exception as error:  # a tracer may fail in any way; each means the same to us
        raise CannotCompile(
            f"its step cannot be traced: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from error
    return graph, list(known), len(old)


@contextmanager
def _whole(cell: nn.Module) -> Iterator[None]:
    """Without weights left out for the sequence at hand, which are no part of the equation."""
    thinned = {
        module: module.thinned for module in cell.modules() if isinstance(getattr(module, "thinned", None), Tensor)
    }
    for module in thinned:
        module.thinned = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, weights in thinned.items():
            module.thinned = weights


class _Reader:
    def __init__(self, size: int):
        if size < 2:
            raise CannotCompile(f"a state of width {size} cannot be told from a single number")
        self.size = size
        self.builder = Builder(size)
        self.values: dict[fx.Node, Any] = {}

    def parameter(self, node: fx.Node, name: str) -> None:
        shape = node.meta["val"].shape
        if len(shape) == 2 and shape[0] % self.size == 0 and shape[1] % self.size == 0:
            self.values[node] = Weight(name, (shape[0] // self.size, shape[1] // self.size))
        elif shape and shape[-1] % self.size == 0:
            self.values[node] = self._vectors(name, tuple(shape))
        else:
            self.values[node] = f"parameter {name} of shape {tuple(shape)} is not made of parts of width {self.size}"

    def _vectors(self, name: str, shape: tuple[int, ...]) -> Parts:
        counts = (*shape[:-1], shape[-1] // self.size)
        found = [self.builder.node("vector", detail=(name, part)) for part in range(int(np.prod(counts)))]
        return Parts(np.array(found).reshape(counts), wide=True, batched=False)

    def drive(self, node: fx.Node) -> None:
        shape = node.meta["val"].shape
        if len(shape) != 2 or shape[1] % self.size:
            raise CannotCompile(f"its drive of width {tuple(shape[1:])} is not made of parts of width {self.size}")
        found = [self.builder.node("load", detail=("drive", part, "units")) for part in range(shape[1] // self.size)]
        self.values[node] = Parts(np.array(found), wide=True, batched=True)

    def state(self, node: fx.Node, number: int) -> None:
        if tuple(node.meta["val"].shape) != (BATCH, self.size):
            raise CannotCompile(f"part {number} of its state has shape (batch, {tuple(node.meta['val'].shape[1:])})")
        self.values[node] = Parts(np.array([self.builder.node("state", detail=(number,))]), wide=True, batched=True)

    def single(self, node: fx.Node) -> int:
        value = self.parts(node)
        if not value.wide or value.nodes.shape != (1,):
            raise CannotCompile(f"its step gives a tensor of shape {tuple(node.meta['val'].shape)}")
        return self.builder.spread(int(value.nodes[0]))

    def parts(self, node: Any) -> Parts:
        """A value as parts; numbers become constants."""
        if isinstance(node, bool | int | float):
            return Parts(np.array(self.builder.constant(node)), wide=False, batched=False)
        value = self.values[node]
        if isinstance(value, str):
            raise CannotCompile(value)
        if isinstance(value, Weight):
            if value.flipped or value.first:
                raise CannotCompile(f"parameter {value.name} is used as a matrix and otherwise")
            return self._vectors(value.name, tuple(node.meta["val"].shape))
        if isinstance(value, list):
            raise CannotCompile("several tensors stand where one should")
        return value

    def operation(self, node: fx.Node) -> None:
        name = _name(node)
        if name == "getitem":
            self.values[node] = self.values[node.args[0]][node.args[1]]
        elif name in READERS:
            self.values[node] = READERS[name](self, node)
        elif name in COMPUTED:
            self.values[node] = self.pointwise(name, *node.args)
        else:
            raise CannotCompile(f"its step uses {name}, which no kernel of ours knows")

    def pointwise(self, op: str, *args: Any) -> Parts:
        return self.combined(lambda *nodes: self.builder.node(op, *nodes), *(self.parts(arg) for arg in args))

    def combined(self, function: Callable[..., int], *values: Parts) -> Parts:
        """The function at each place, after the shapes are brought together as torch does it."""
        wide = any(value.wide for value in values)
        for value in values:
            if wide and not value.wide and value.nodes.shape[-1:] not in ((), (1,)):
                raise CannotCompile("a tensor whose last axis is not the hidden units meets one whose last axis is")
        nodes = np.broadcast_arrays(*(value.nodes for value in values))
        found = [function(*(int(one) for one in each)) for each in zip(*(one.ravel() for one in nodes), strict=True)]
        batched = any(value.batched for value in values)
        return Parts(np.array(found, dtype=int).reshape(nodes[0].shape), wide, batched)

    def axis(self, node: fx.Node, dim: int) -> tuple[Parts, int]:
        """A value, and which axis of its array `dim` is."""
        value = self.parts(node)
        rank = len(node.meta["val"].shape)
        place = dim % rank - value.batched
        if place < 0:
            raise CannotCompile("its step mixes rows of the batch")
        return value, place

    def border(self, value: Parts, axis: int, place: int) -> int:
        if not value.wide or axis != value.nodes.ndim - 1:
            return place
        if place % self.size:
            raise CannotCompile(f"it cuts a tensor at {place}, between the borders of parts of width {self.size}")
        return place // self.size

    def cut(self, node: fx.Node, source: fx.Node, dim: int, start: int, stop: int) -> Any:
        """A slice: of a matrix by whole blocks of rows, of all else between parts."""
        given = self.values[source]
        if (
            isinstance(given, Weight)
            and dim == 0
            and not given.flipped
            and not start % self.size
            and not stop % self.size
        ):
            rows = start // self.size, stop // self.size
            return given._replace(first=given.first + rows[0], blocks=(rows[1] - rows[0], given.blocks[1]))
        value, axis = self.axis(source, dim)
        begin, end = self.border(value, axis, start), self.border(value, axis, stop)
        return value._replace(nodes=value.nodes.take(range(begin, end), axis=axis))

    def product(self, past: fx.Node, weight: fx.Node) -> Parts:
        value, matrix = self.parts(past), self.values[weight]
        if not isinstance(matrix, Weight):
            raise CannotCompile("it multiplies with a matrix that is no parameter, or not made of square blocks")
        if not (value.wide and value.batched and value.nodes.ndim == 1):
            raise CannotCompile("it multiplies a matrix with something else than parts of rows")
        args = [self.builder.spread(int(one)) for one in value.nodes]
        rows, columns = matrix.blocks
        found = []
        for part in range(rows if matrix.flipped else columns):
            blocks = [_block(matrix, part, heard) for heard in range(len(args))]
            found.append(self.builder.node("product", *args, detail=tuple(blocks)))
        return Parts(np.array(found), wide=True, batched=True)

    def reshaped(self, node: fx.Node, value: Parts) -> Parts:
        """The same parts in the same order under another shape."""
        shape = tuple(node.meta["val"].shape)
        if value.batched and (not shape or shape[0] != BATCH):
            raise CannotCompile("its step mixes rows of the batch")
        shape = shape[1:] if value.batched else shape
        if value.wide:
            if not shape or shape[-1] % self.size:
                raise CannotCompile(f"it views parts of width {self.size} as {shape}")
            shape = (*shape[:-1], shape[-1] // self.size)
        return value._replace(nodes=value.nodes.reshape(shape))

    def total(self, value: Parts, axes: list[int]) -> Parts:
        """The sum over some axes, which stay as axes of length 1."""
        nodes = value.nodes
        for axis in axes:
            nodes = _folded(self.builder, nodes, axis)
        if not (value.wide and value.nodes.ndim - 1 in axes):
            return value._replace(nodes=nodes)
        over_units = [self.builder.total(int(one)) for one in nodes.ravel()]
        return Parts(np.array(over_units).reshape(nodes.shape), False, value.batched)

    def mean(self, value: Parts, axes: list[int]) -> Parts:
        count = np.prod([value.nodes.shape[axis] for axis in axes])
        if value.wide and value.nodes.ndim - 1 in axes:
            count *= self.size
        return self.combined(lambda one: self.builder.times(one, 1 / float(count)), self.total(value, axes))

    def reduced(self, source: fx.Node, dims: list[int] | None) -> tuple[Parts, list[int]]:
        """A value and the axes of its array that a reduction goes over: all but the rows, if none is named."""
        dims = dims or list(range(1, len(source.meta["val"].shape)))
        return self.parts(source), [self.axis(source, dim)[1] for dim in dims]


def _block(matrix: Weight, part: int, heard: int) -> Matrix:
    """`linear(value, W)` sees W from its other side: its rows are what is made; `value @ W` has it the other way."""
    if matrix.flipped:
        return Matrix(matrix.name, matrix.first + part, heard)
    return Matrix(matrix.name, matrix.first + heard, part, flipped=True)


def _folded(builder: Builder, nodes: np.ndarray, axis: int) -> np.ndarray:
    """The sum along one axis of an array of nodes, which stays as an axis of length 1."""
    first, *others = np.moveaxis(nodes, axis, 0)
    total = np.array(first)
    for other in others:
        pairs = zip(total.ravel(), np.array(other).ravel(), strict=True)
        total = np.array([builder.add(int(a), int(b)) for a, b in pairs], dtype=int).reshape(total.shape)
    return np.expand_dims(total, axis)


def _name(node: fx.Node) -> str:
    """ "add" of "aten.add.Tensor"."""
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _same(reader: _Reader, node: fx.Node) -> Any:
    value = reader.values[node.args[0]]
    if not node.meta["val"].dtype.is_floating_point:
        raise CannotCompile(f"its step turns numbers into {node.meta['val'].dtype}")
    return value


def _view(reader: _Reader, node: fx.Node) -> Parts:
    return reader.reshaped(node, reader.parts(node.args[0]))


def _expand(reader: _Reader, node: fx.Node) -> Parts:
    value = reader.parts(node.args[0])
    shape = tuple(node.meta["val"].shape)[1 if value.batched else 0 :]
    if value.wide:
        shape = (*shape[:-1], shape[-1] // reader.size)
    return value._replace(nodes=np.array(np.broadcast_to(value.nodes, shape)))


def _permute(reader: _Reader, node: fx.Node) -> Weight:
    value = reader.values[node.args[0]]
    if not isinstance(value, Weight):
        raise CannotCompile("it exchanges axes of something that is no matrix")
    return value._replace(flipped=not value.flipped)


def _split(reader: _Reader, node: fx.Node) -> list[Any]:
    source, sizes, *rest = node.args
    dim = rest[0] if rest else node.kwargs.get("dim", 0)
    length = source.meta["val"].shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
    ends = np.cumsum(sizes).tolist()
    return [reader.cut(node, source, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _slice(reader: _Reader, node: fx.Node) -> Any:
    source, dim, start, stop, step = [*node.args, *[0, None, None, 1][len(node.args) - 1 :]]
    length = source.meta["val"].shape[dim]
    if step != 1:
        raise CannotCompile("it takes every other unit")
    start, stop, _ = slice(start, stop).indices(length)
    if (start, stop) == (0, length):
        return reader.values[source]
    return reader.cut(node, source, dim, start, stop)


def _select(reader: _Reader, node: fx.Node) -> Parts:
    source, dim, index = node.args
    value, axis = reader.axis(source, dim)
    if value.wide and axis == value.nodes.ndim - 1:
        raise CannotCompile("it picks out a single unit")
    return value._replace(nodes=value.nodes.take(index, axis=axis))


def _cat(reader: _Reader, node: fx.Node) -> Parts:
    sources, *rest = node.args
    _, axis = reader.axis(sources[0], rest[0] if rest else 0)
    values = [reader.parts(source) for source in sources]
    if len({(value.wide, value.batched) for value in values}) > 1:
        raise CannotCompile("it joins tensors of different kinds")
    return values[0]._replace(nodes=np.concatenate([value.nodes for value in values], axis=axis))


def _mm(reader: _Reader, node: fx.Node) -> Parts:
    return reader.product(*node.args)


def _addmm(reader: _Reader, node: fx.Node) -> Parts:
    if node.kwargs:
        raise CannotCompile("it scales what it adds to a product")
    bias, past, weight = node.args
    return reader.combined(reader.builder.add, reader.parts(bias), reader.product(past, weight))


def _sum(reader: _Reader, node: fx.Node) -> Parts:
    value, axes = reader.reduced(node.args[0], node.args[1] if len(node.args) > 1 else None)
    return reader.reshaped(node, reader.total(value, axes))


def _mean(reader: _Reader, node: fx.Node) -> Parts:
    value, axes = reader.reduced(node.args[0], node.args[1] if len(node.args) > 1 else None)
    return reader.reshaped(node, reader.mean(value, axes))


def _var_mean(reader: _Reader, node: fx.Node) -> list[Parts]:
    """Both from two sums that travel together; what the difference of squares loses is little where means are small."""
    if node.kwargs.get("correction", 1) != 0 or not node.kwargs.get("keepdim"):
        raise CannotCompile("it takes a variance other than that of layer norm")
    b = reader.builder
    value, axes = reader.reduced(node.args[0], node.args[1])
    mean = reader.mean(value, axes)
    of_squares = reader.mean(reader.combined(lambda one: b.mul(one, one), value), axes)

    def variance(of_squares: int, mean: int) -> int:
        return b.node("maximum", b.sub(of_squares, b.mul(mean, mean)), b.constant(0))

    return [reader.combined(variance, of_squares, mean), mean]


def _full(reader: _Reader, node: fx.Node) -> Parts:
    """A tensor of one number throughout."""
    name = _name(node)
    number = 0.0 if "zeros" in name else 1.0 if "ones" in name else node.args[0] if "scalar" in name else node.args[1]
    shape = tuple(node.meta["val"].shape)
    batched = bool(shape) and shape[0] == BATCH
    counts = list(shape[1:] if batched else shape)
    wide = bool(counts) and counts[-1] % reader.size == 0
    if wide:
        counts[-1] //= reader.size
    return Parts(np.full(counts, reader.builder.constant(number)), wide, batched)


def _scaled_sum(op: str) -> Callable[[_Reader, fx.Node], Parts]:
    def read(reader: _Reader, node: fx.Node) -> Parts:
        first, second = reader.parts(node.args[0]), reader.parts(node.args[1])
        factor = node.kwargs.get("alpha", 1)
        second = reader.combined(lambda one: reader.builder.times(one, factor), second)
        return reader.combined(getattr(reader.builder, op), first, second)

    return read


def _mul(reader: _Reader, node: fx.Node) -> Parts:
    return reader.combined(reader.builder.mul, *(reader.parts(arg) for arg in node.args))


def _pow(reader: _Reader, node: fx.Node) -> Parts:
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


def _clamp(reader: _Reader, node: fx.Node) -> Parts:
    value, low, high = [*node.args, None, None][:3]
    result = reader.parts(value)
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            limit = reader.parts(bound)
            result = reader.combined(lambda a, b, op=op: reader.builder.node(op, a, b), result, limit)
    return result


def _leaky(reader: _Reader, node: fx.Node) -> Parts:
    slope = node.args[1] if len(node.args) > 1 else 0.01
    b = reader.builder

    def leak(one: int) -> int:
        return b.node("where", b.node("gt", one, b.constant(0)), one, b.times(one, slope))

    return reader.combined(leak, reader.parts(node.args[0]))


def _elu(reader: _Reader, node: fx.Node) -> Parts:
    alpha, scale, inner = [*node.args[1:], *[1.0, 1.0, 1.0][len(node.args) - 1 :]]
    b = reader.builder

    def bend(one: int) -> int:
        low = b.times(b.node("expm1", b.times(one, inner)), alpha * scale)
        return b.node("where", b.node("gt", one, b.constant(0)), b.times(one, scale), low)

    return reader.combined(bend, reader.parts(node.args[0]))


READERS: dict[str, Callable[[_Reader, fx.Node], Any]] = {
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
