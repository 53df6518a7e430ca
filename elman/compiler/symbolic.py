"""Tensors of a traced step as arrays of parts: what views, cuts, sums and products do to them."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from elman.compiler.errors import CannotCompile
from elman.compiler.ir import Builder, Matrix

Traced: TypeAlias = Any  # a node of torch's graph, whose arguments may be anything


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


class Reader:
    """The values of a traced step so far, and what can be done with parts.

    `rows` of its example: no other axis is as long. `careful`: digits count more than meetings of those who compute.
    """

    def __init__(self, size: int, rows: int, careful: bool = False):
        if size < 2:
            raise CannotCompile(f"a state of width {size} cannot be told from a single number")
        self.size, self.rows, self.careful = size, rows, careful
        self.builder = Builder(size)
        self.values: dict[Traced, Any] = {}

    def parameter(self, node: Traced, name: str) -> None:
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

    def drive(self, node: Traced) -> None:
        shape = node.meta["val"].shape
        if len(shape) != 2 or shape[1] % self.size:
            raise CannotCompile(f"its drive of width {tuple(shape[1:])} is not made of parts of width {self.size}")
        found = [self.builder.node("load", detail=("drive", part, "units")) for part in range(shape[1] // self.size)]
        self.values[node] = Parts(np.array(found), wide=True, batched=True)

    def state(self, node: Traced, number: int) -> None:
        if tuple(node.meta["val"].shape) != (self.rows, self.size):
            raise CannotCompile(f"part {number} of its state has shape (batch, {tuple(node.meta['val'].shape[1:])})")
        self.values[node] = Parts(np.array([self.builder.node("state", detail=(number,))]), wide=True, batched=True)

    def single(self, node: Traced) -> int:
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

    def axis(self, node: Traced, dim: int) -> tuple[Parts, int]:
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

    def cut(self, source: Traced, dim: int, start: int, stop: int) -> Any:
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

    def product(self, past: Traced, weight: Traced) -> Parts:
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

    def reshaped(self, node: Traced, value: Parts) -> Parts:
        """The same parts in the same order under another shape."""
        shape = tuple(node.meta["val"].shape)
        if value.batched and (not shape or shape[0] != self.rows):
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

    def reduced(self, source: Traced, dims: list[int] | None) -> tuple[Parts, list[int]]:
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
