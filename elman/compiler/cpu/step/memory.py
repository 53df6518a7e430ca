"""Memory of compiled steps: a row has one block, with its state (double-buffered), input, output and scratch memory.

    Row (products.h) | addresses of the state | of the next state | input | output | state, next state … | scratch

Everything in it begins at a cache line, so that all rows run the same instructions on the same alignment.
"""

import ctypes
import mmap
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elman.compiler.cpu.step.buffers import SlidingWindow
from elman.compiler.cpu.step.lowering import LoweredStep
from elman.compiler.cpu.step.program import ALIGNMENT, padded

HUGE = 2**21  # bytes of a huge page: fewer TLB misses while weights stream in
ROW = 64  # bytes of the struct Row
SCRATCH, GIVEN, STATE, NEXT, OUTPUT = range(5)  # its first fields


def aligned(size: int) -> Tensor:
    """Zeroed memory, page-aligned, in huge pages where the system has them."""
    memory = mmap.mmap(-1, max(size, 1) + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE
    return whole[start : start + size]


def address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def pointers(tensors: list[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


def row_bytes(lowered: LoweredStep) -> int:
    """Size of a row's block. An odd number of cache lines: the same parts of neighbours are in different cache sets."""
    lines = sum(map(padded, _sizes(lowered))) // ALIGNMENT
    return (lines + 1 - lines % 2) * ALIGNMENT


class RowMemory:
    """The state, input and output of one row; a step reads one copy of the state and writes the other."""

    def __init__(self, lowered: LoweredStep, block: Tensor):
        self._lowered = lowered
        sizes = _sizes(lowered)
        blocks = iter(block[: sum(map(padded, sizes))].split([padded(size) for size in sizes]))
        parts = iter([next(blocks)[:size] for size in sizes])
        self._struct, addresses = next(parts).view(torch.int64), [next(parts).view(torch.int64) for _ in range(2)]
        self.input, self.output = (_typed(next(parts), like) for like in (lowered.input, lowered.output))
        self._copies: list[tuple[Tensor, Tensor]] = []
        for number, like in enumerate(lowered.state):
            if number in lowered.windows:
                strip = next(parts)
                self._copies.append((strip, strip))
            else:
                self._copies.append((_typed(next(parts), like), _typed(next(parts), like)))
        for side, where in enumerate(addresses):
            where.copy_(torch.tensor([copies[side].data_ptr() for copies in self._copies], dtype=torch.int64))
        self._first = addresses[0].data_ptr()
        fields = (next(parts), self.input, *addresses, self.output)
        self._struct[: len(fields)] = torch.tensor([field.data_ptr() for field in fields])
        self.address = self._struct.data_ptr()
        self._fields = self._struct.numpy()
        self._arrays = [[side.numpy() for side in sides] for sides in self._copies]
        self._bytes = [[_bytes(side) for side in sides] for sides in self._arrays]

    @property
    def _side(self) -> int:
        return int(self._fields[STATE] != self._first)  # each step swaps the two addresses

    @property
    def state(self) -> list[Tensor]:
        """The state after the last step. Later steps overwrite it."""
        parts = [copies[self._side] for copies in self._copies]
        for number, window in self._lowered.windows.items():
            parts[number] = window.view(parts[number], self._lowered.state[number].dtype)
        return parts

    def load(self, state: list[Tensor]) -> None:
        """Copies a state into this memory."""
        shapes, known = ([tuple(part.shape) for part in parts] for parts in (state, self._lowered.state))
        assert shapes == known, f"the state has shapes {shapes}; the program needs {known}"
        for number in self._lowered.windows:
            SlidingWindow.reset(self._copies[number][0])
        side = self._side
        for number, part in enumerate(state):
            array = None if number in self._lowered.windows else _array(part)
            if array is not None and array.dtype == self._arrays[number][side].dtype:
                self._bytes[number][side][:] = _bytes(np.ascontiguousarray(array))
            else:
                self.state[number].copy_(part)

    def copied(self) -> list[Tensor]:
        """A copy of the state."""
        side, found = self._side, []
        for number, sides in enumerate(self._arrays):
            if number in self._lowered.windows or not sides[side].size:
                found.append(self.state[number].clone())
            else:
                copy = np.frombuffer(bytearray(self._bytes[number][side]), sides[side].dtype)
                found.append(torch.from_numpy(copy.reshape(sides[side].shape)))
        return found


# A server has a busy thread beside the one that steps rows. Operations of torch let it run, and may wait for it for
# milliseconds afterwards; a copy of bytes does not.


def _array(part: Tensor) -> Any:
    try:
        return part.numpy()
    except (RuntimeError, TypeError):  # a gradient, a conjugate, another device
        return None


def _bytes(array: Any) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _sizes(lowered: LoweredStep) -> list[int]:
    """Bytes of everything in a row's block, in its order."""
    addresses = 8 * len(lowered.state)
    sizes = [ROW, addresses, addresses, lowered.input.nbytes, lowered.output.nbytes]
    for number, part in enumerate(lowered.state):
        window = lowered.windows.get(number)
        sizes += [part.nbytes] * 2 if window is None else [window.bytes(part.dtype)]
    return [*sizes, lowered.scratch]


def _typed(memory: Tensor, like: Tensor) -> Tensor:
    return memory.view(like.dtype).view(like.shape)
