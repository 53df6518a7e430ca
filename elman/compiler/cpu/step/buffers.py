"""Where a number lies: buffers of a generated program, and tensors as views of them.

The layout of a view is that of a tensor on torch's meta device, so every view operation of torch is known at once.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from elman.compiler.errors import CannotCompile

C_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
    torch.complex64: "complex",
}


class Buffer(NamedTuple):
    name: str
    kind: str  # which pointer of the program it belongs to: weights, given, state or scratch
    size: int  # numbers
    dtype: torch.dtype


class Value(NamedTuple):
    """A tensor of the program: a buffer, and how the tensor lies in it."""

    buffer: Buffer
    layout: Tensor

    @classmethod
    def whole(cls, buffer: Buffer, shape: tuple[int, ...] | torch.Size) -> "Value":
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
        """C: where its first number lies."""
        return f"(({c_type(self.dtype)}*){self.buffer.name} + {self.layout.storage_offset()})"

    def element(self, variables: list[str]) -> str:
        """C: the number at these indices, one for each axis."""
        terms = [
            variable if stride == 1 else f"{variable} * {stride}"
            for variable, stride in zip(variables, self.layout.stride(), strict=True)
            if variable != "0" and stride
        ]
        offset = self.layout.storage_offset()
        index = " + ".join([str(offset)] * (offset > 0 or not terms) + terms)
        name = self.buffer.name
        if self.dtype != self.buffer.dtype:
            name = f"(({c_type(self.dtype)}*){name})"
        return f"{name}[{index}]"


def c_type(dtype: torch.dtype) -> str:
    if dtype not in C_TYPES:
        raise CannotCompile(f"numbers of type {str(dtype).removeprefix('torch.')} are not known")
    return C_TYPES[dtype]


def loop_variables(shape: tuple[int, ...]) -> tuple[list[str], tuple[int, ...]]:
    """The index of each axis, and the sizes of the loops: axes of one place need none."""
    names: list[str] = []
    sizes: list[int] = []
    for size in shape:
        names.append("0" if size == 1 else f"i{len(sizes)}")
        if size != 1:
            sizes.append(size)
    return names, tuple(sizes)
