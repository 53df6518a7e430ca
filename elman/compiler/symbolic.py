"""Symbolic tensors: a tensor of the traced step as an array of IR values, one for each part of width H.

    drive (B, 3·H)  ->  SymbolicTensor(nodes=[%0, %1, %2], wide=True, batched=True)
    drive.chunk(3)  ->  three SymbolicTensors with nodes [%0], [%1] and [%2]

So views, slices, splits and concatenations rearrange node numbers and write no IR. Parameters whose rows and columns
are multiples of H stay `WeightView`s until a product reads their H x H blocks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from elman.compiler.errors import CannotCompile
from elman.compiler.ir import IRBuilder, MatrixBlock

Traced: TypeAlias = Any  # an fx.Node, whose arguments may be anything


class SymbolicTensor(NamedTuple):
    """`nodes` has the tensor's shape without the batch axis (`batched`) and with the last axis counted in parts of H
    (`wide`)."""

    nodes: np.ndarray
    wide: bool
    batched: bool


class WeightView(NamedTuple):
    """A parameter as a matrix of `blocks` (rows, columns) of H x H, or some rows of blocks of it, from `first` on."""

    name: str
    blocks: tuple[int, int]
    first: int = 0
    flipped: bool = False  # transposed


class SymbolicInterpreter:
    """Symbolic values of the traced nodes so far, and the operations on them; writes the IR with `builder`.

    `rows`: the batch size of the example, which no other axis has.
    """

    def __init__(self, size: int, rows: int, two_pass_variance: bool = False):
        if size < 2:
            raise CannotCompile(f"a state of width {size} cannot be distinguished from a scalar")
        self.size, self.rows, self.two_pass_variance = size, rows, two_pass_variance
        self.builder = IRBuilder(size)
        self.values: dict[Traced, Any] = {}

    def parameter(self, node: Traced, name: str) -> None:
        shape = node.meta["val"].shape
        if len(shape) == 2 and shape[0] % self.size == 0 and shape[1] % self.size == 0:
            self.values[node] = WeightView(name, (shape[0] // self.size, shape[1] // self.size))
        elif shape and shape[-1] % self.size == 0:
            self.values[node] = self._vectors(name, tuple(shape))
        else:  # an error only if it is read
            given = f"parameter {name} of shape {tuple(shape)}"
            self.values[node] = f"{given} is no multiple of the hidden size {self.size}"

    def _vectors(self, name: str, shape: tuple[int, ...]) -> SymbolicTensor:
        counts = (*shape[:-1], shape[-1] // self.size)
        nodes = [self.builder.node("vector", detail=(name, part)) for part in range(int(np.prod(counts)))]
        return SymbolicTensor(np.array(nodes).reshape(counts), wide=True, batched=False)

    def drive(self, node: Traced) -> None:
        shape = node.meta["val"].shape
        if len(shape) != 2 or shape[1] % self.size:
            raise CannotCompile(f"its drive of width {tuple(shape[1:])} is no multiple of the hidden size {self.size}")
        nodes = [self.builder.node("load", detail=("drive", part, "units")) for part in range(shape[1] // self.size)]
        self.values[node] = SymbolicTensor(np.array(nodes), wide=True, batched=True)

    def state(self, node: Traced, part: int) -> None:
        if tuple(node.meta["val"].shape) != (self.rows, self.size):
            raise CannotCompile(f"part {part} of its state has shape (batch, {tuple(node.meta['val'].shape[1:])})")
        index = self.builder.node("state", detail=(part,))
        self.values[node] = SymbolicTensor(np.array([index]), wide=True, batched=True)

    def result(self, node: Traced) -> int:
        """The IR value of a result of the step, which must have shape (B, H)."""
        value = self.tensor(node)
        if not value.wide or value.nodes.shape != (1,):
            raise CannotCompile(f"its step returns a tensor of shape {tuple(node.meta['val'].shape)}")
        return self.builder.broadcast(int(value.nodes[0]))

    def tensor(self, node: Any) -> SymbolicTensor:
        """The value of an operand: of a traced node, or the tensor itself; Python numbers become constants."""
        if isinstance(node, SymbolicTensor):
            return node
        if isinstance(node, bool | int | float):
            return SymbolicTensor(np.array(self.builder.constant(node)), wide=False, batched=False)
        value = self.values[node]
        if isinstance(value, str):
            raise CannotCompile(value)
        if isinstance(value, WeightView):
            if value.flipped or value.first:
                raise CannotCompile(f"parameter {value.name} is used both as a matrix and element by element")
            return self._vectors(value.name, tuple(node.meta["val"].shape))
        if isinstance(value, list):
            raise CannotCompile("a list of tensors where a single tensor is expected")
        return value

    def pointwise(self, op: str, *operands: Any) -> SymbolicTensor:
        return self.map(lambda *nodes: self.builder.node(op, *nodes), *operands)

    def map(self, function: Callable[..., int], *operands: Any) -> SymbolicTensor:
        """The function of nodes at each place, after broadcasting as torch does it."""
        values = [self.tensor(operand) for operand in operands]
        wide = any(value.wide for value in values)
        if wide and any(not value.wide and value.nodes.shape[-1:] not in ((), (1,)) for value in values):
            raise CannotCompile("a tensor whose last axis is the hidden units meets one whose last axis is not")
        # a numpy ufunc of a Python function; it broadcasts, and objects keep node numbers Python ints
        results = np.frompyfunc(function, len(values), 1)(*(value.nodes.astype(object) for value in values))
        return SymbolicTensor(np.array(results, dtype=int), wide, any(value.batched for value in values))

    def axis(self, node: Traced, dim: int) -> tuple[SymbolicTensor, int]:
        """A value, and the axis of its `nodes` that corresponds to `dim`."""
        value = self.tensor(node)
        axis = dim % len(node.meta["val"].shape) - value.batched
        if axis < 0:
            raise CannotCompile("its step mixes rows of the batch")
        return value, axis

    def _boundary(self, value: SymbolicTensor, axis: int, position: int) -> int:
        """A position on the axis, in parts where the axis is the wide one."""
        if not value.wide or axis != value.nodes.ndim - 1:
            return position
        if position % self.size:
            raise CannotCompile(
                f"it slices a tensor at {position}, which is no multiple of the hidden size {self.size}"
            )
        return position // self.size

    def slice(self, source: Traced, dim: int, start: int, stop: int) -> Any:
        """source[start:stop] along `dim`: of a matrix by rows of blocks, of others by parts."""
        view, size = self.values[source], self.size
        if isinstance(view, WeightView) and dim == 0 and not view.flipped and not start % size and not stop % size:
            first, last = start // size, stop // size
            return view._replace(first=view.first + first, blocks=(last - first, view.blocks[1]))
        value, axis = self.axis(source, dim)
        begin, end = self._boundary(value, axis, start), self._boundary(value, axis, stop)
        return value._replace(nodes=value.nodes.take(range(begin, end), axis=axis))

    def matmul(self, past: Traced, weight: Traced) -> SymbolicTensor:
        value, view = self.tensor(past), self.values[weight]
        if not isinstance(view, WeightView):
            raise CannotCompile("it multiplies by a matrix that is no parameter, or no multiple of the hidden size")
        if not (value.wide and value.batched and value.nodes.ndim == 1):
            raise CannotCompile("it multiplies a matrix by something other than (batch, m · hidden size)")
        args = [self.builder.broadcast(int(one)) for one in value.nodes]
        rows, columns = view.blocks

        def block(part: int, inner: int) -> MatrixBlock:
            """The block from input part `inner` to output part `part`: of Wᵀ in `linear(x, W)`, of W in `x @ W`."""
            if view.flipped:
                return MatrixBlock(view.name, view.first + part, inner)
            return MatrixBlock(view.name, view.first + inner, part, flipped=True)

        nodes = [
            self.builder.node("matmul", *args, detail=tuple(block(part, inner) for inner in range(len(args))))
            for part in range(rows if view.flipped else columns)
        ]
        return SymbolicTensor(np.array(nodes), wide=True, batched=True)

    def reshape(self, node: Traced, value: SymbolicTensor) -> SymbolicTensor:
        """`value` with the shape that the trace noted for `node`."""
        shape = tuple(node.meta["val"].shape)
        if value.batched and (not shape or shape[0] != self.rows):
            raise CannotCompile("its step mixes rows of the batch")
        shape = shape[1:] if value.batched else shape
        if value.wide:
            if not shape or shape[-1] % self.size:
                raise CannotCompile(f"it views hidden units (width {self.size}) as {shape}")
            shape = (*shape[:-1], shape[-1] // self.size)
        return value._replace(nodes=value.nodes.reshape(shape))

    def sum(self, value: SymbolicTensor, axes: list[int]) -> SymbolicTensor:
        """The sum over some axes, which stay as axes of length 1."""
        nodes = value.nodes.astype(object)
        for axis in axes:
            nodes = np.frompyfunc(self.builder.add, 2, 1).reduce(nodes, axis=axis, keepdims=True)
        total = value._replace(nodes=nodes.astype(int))
        over_units = value.wide and value.nodes.ndim - 1 in axes
        return self.map(self.builder.sum_units, total)._replace(wide=False) if over_units else total

    def mean(self, value: SymbolicTensor, axes: list[int]) -> SymbolicTensor:
        count = np.prod([value.nodes.shape[axis] for axis in axes])
        if value.wide and value.nodes.ndim - 1 in axes:
            count *= self.size
        return self.map(lambda one: self.builder.scale(one, 1 / float(count)), self.sum(value, axes))

    def reduced(self, source: Traced, dims: list[int] | None) -> tuple[SymbolicTensor, list[int]]:
        """A value and the axes of its `nodes` that a reduction goes over: all but the batch by default."""
        dims = dims or list(range(1, len(source.meta["val"].shape)))
        return self.tensor(source), [self.axis(source, dim)[1] for dim in dims]
