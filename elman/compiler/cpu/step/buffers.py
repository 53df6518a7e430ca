"""Buffers of a generated program, and tensors as strided views of them.

The layout of a view is a tensor on torch's meta device, so every view operation of torch is supported at once.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from elman.compiler.cpu.c_source import c_type


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
    names: list[str] = []
    sizes: list[int] = []
    for size in shape:
        names.append("0" if size == 1 else f"i{len(sizes)}")
        if size != 1:
            sizes.append(size)
    return names, tuple(sizes)
