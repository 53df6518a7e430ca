"""Buffers of a generated program, and tensors as strided views of them.

The layout of a view is a tensor on torch's meta device, so every view operation of torch is supported at once.

Sliding windows in place: key/value caches and convolution windows, `cat([state, new])[1:]`, without a copy.

    strip:  [ . . a b c d . . . ]  --step-->  [ . . . b c d e . . ]      a window of length 4, `added` = 1
                  ^ start                           ^ start

The window lies in a longer strip of memory. A step writes behind its end and advances its start. When the strip is
full, the window is moved back to the beginning.
"""

import math
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from elman.compiler.cpu.build import c_type

aten = torch.ops.aten
MIN_STEPS = 64  # that a window slides before it is moved back; a longer window slides its own length
HEADER = 64  # bytes before the strip: the window's start


class Buffer(NamedTuple):
    name: str
    memory: str  # which pointer of the program it belongs to: weights, given, state or scratch
    size: int  # elements
    dtype: torch.dtype


class Value(NamedTuple):
    """A tensor of the program: a buffer, and the shape, strides and offset of the tensor in it."""

    buffer: Buffer
    layout: Tensor

    @classmethod
    def contiguous(cls, buffer: Buffer, shape: tuple[int, ...] | torch.Size) -> "Value":
        return cls(buffer, torch.empty(shape, dtype=buffer.dtype, device="meta"))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.layout.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.layout.dtype

    @property
    def fills_its_buffer(self) -> bool:
        same = self.layout.numel() == self.buffer.size and self.dtype == self.buffer.dtype
        return same and self.layout.is_contiguous()

    def expand(self, shape: tuple[int, ...]) -> "Value":
        return self._replace(layout=self.layout.expand(shape))

    def pointer(self) -> str:
        """C: the address of its first element."""
        return f"(({c_type(self.dtype)}*){self.buffer.name} + {self.layout.storage_offset()})"

    def element(self, indices: list[str]) -> str:
        """C: the element at these indices, one for each axis."""
        terms = [
            index if stride == 1 else f"{index} * {stride}"
            for index, stride in zip(indices, self.layout.stride(), strict=True)
            if index != "0" and stride
        ]
        offset = self.layout.storage_offset()
        position = " + ".join([str(offset)] * (offset > 0 or not terms) + terms)
        name = self.buffer.name
        if self.dtype != self.buffer.dtype:
            name = f"(({c_type(self.dtype)}*){name})"
        return f"{name}[{position}]"


def loop_variables(shape: tuple[int, ...]) -> tuple[list[str], tuple[int, ...]]:
    """The index variable of each axis, and the sizes of the loops; axes of length 1 need no loop."""
    numbers = count()
    names = ["0" if size == 1 else f"i{next(numbers)}" for size in shape]
    return names, tuple(size for size in shape if size != 1)


class SlidingWindow(NamedTuple):
    axis: int
    length: int
    added: int  # new positions per step
    shape: tuple[int, ...]  # of the whole strip

    def bytes(self, dtype: torch.dtype) -> int:
        """Size of the header and the strip."""
        return HEADER + math.prod(self.shape) * dtype.itemsize

    @staticmethod
    def reset(strip: Tensor) -> None:
        """Moves the start to 0."""
        strip[:HEADER].zero_()

    def view(self, strip: Tensor, dtype: torch.dtype) -> Tensor:
        """The state: a view of the current window."""
        start = int(strip[:8].view(torch.int64))
        return strip[HEADER:].view(dtype).view(self.shape).narrow(self.axis, start, self.length)

    def pointer(self, c_dtype: str, memory: str) -> str:
        """C: the address of the window's first element; the call advances the start."""
        outer, inner = math.prod(self.shape[: self.axis]), math.prod(self.shape[self.axis + 1 :])
        sizes = f"{outer}, {self.shape[self.axis]}, {inner}, {self.length}, {self.added}"
        return f"advance_window<{c_dtype}>((void*){memory}, {sizes})"


def find_windows(state: list[Any], following: list[Any]) -> dict[fx.Node, SlidingWindow]:
    """The parts of the state that are sliding windows, by the node that concatenates old and new positions."""
    found: dict[fx.Node, SlidingWindow] = {}
    for old, new in zip(state, following, strict=True):
        part = new
        while part.target in (aten.clone.default, aten._to_copy.default) and _dtype(part) == _dtype(part.args[0]):
            part = part.args[0]
        if part.target is not aten.slice.Tensor or part.args[0].target is not aten.cat.default:
            continue
        joined, axis, start = part.args[:3]
        shape, along = tuple(old.meta["val"].shape), (*joined.args, 0)[1] % old.meta["val"].dim()
        length, added = shape[along], joined.meta["val"].shape[along] - shape[along]
        moves = axis % len(shape) == along and start == added and tuple(part.meta["val"].shape) == shape
        alone = joined.args[0][0] is old and len(joined.args[0]) == 2 and list(old.users) == [joined]
        if moves and alone and length and _dtype(joined) == _dtype(old):
            total = length + added * max(MIN_STEPS, length)
            found[joined] = SlidingWindow(along, length, added, (*shape[:along], total, *shape[along + 1 :]))
    return found


def _dtype(node: fx.Node) -> torch.dtype:
    return node.meta["val"].dtype
