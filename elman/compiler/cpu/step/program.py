"""A compiled step: its weights packed, its memory ready, called from Python or running on its own in C++."""

import ctypes
import mmap
from typing import Any

import torch
from torch import Tensor, fx

from elman.compiler.cpu import build
from elman.compiler.cpu.step.lowering import ALIGNMENT, Lowered, Weight
from elman.compiler.cpu.step.packing import pack

HUGE = 2**21  # bytes of a huge page: fewer addresses to look up while weights stream in


class Program:
    """`step(token, state) -> (logits, state)` in machine code, for one row; states are lists of tensors."""

    def __init__(self, lowered: Lowered, parameters: list[Tensor]):
        self.lowered = lowered
        self.library = build.library(lowered.source)
        together = ctypes.cast(build.runtime().share_work, ctypes.c_void_p)
        ctypes.c_void_p.in_dll(self.library, "share").value = together.value
        self.renew(parameters)

    def renew(self, parameters: list[Tensor]) -> None:
        """Take over weights: after a change of the model's."""
        values = _constants(self.lowered, parameters)
        arrays = [_array(weight, values[weight.node]) for weight in self.lowered.weights]
        packed = [place for place, weight in enumerate(self.lowered.weights) if weight.form != "plain"]
        sizes = [-(-arrays[place].nbytes // ALIGNMENT) * ALIGNMENT for place in packed]
        self.arena = aligned(sum(sizes))
        start = 0
        for place, size in zip(packed, sizes, strict=True):
            array = arrays[place]
            arrays[place] = self.arena[start : start + array.nbytes].copy_(array)
            start += size
        self.arrays = arrays
        self.weights = pointers(arrays)

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights, all of which are read in each step but those of experts that are not chosen."""
        return self.arena.nbytes


def address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def pointers(tensors: list[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


def aligned(size: int) -> Tensor:
    """Zeros at an aligned place, in huge pages where the system has them."""
    area = mmap.mmap(-1, max(size, 1) + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(area, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE
    return whole[start : start + size]


def _constants(lowered: Lowered, parameters: list[Tensor]) -> dict[fx.Node, Tensor]:
    """What the weights alone decide, computed once, by torch."""
    found: dict[fx.Node, Any] = dict(zip(lowered.parameters, parameters, strict=True))
    with torch.no_grad():
        for node in lowered.constants:
            if node.op == "call_function":
                keywords = {key: value for key, value in node.kwargs.items() if key not in ("device", "pin_memory")}
                found[node] = node.target(*fx.node.map_arg(node.args, found.__getitem__), **keywords)  # type: ignore
    return found


def _array(weight: Weight, value: Tensor) -> Tensor:
    value = value.detach().resolve_conj().contiguous()
    if weight.form == "plain":
        return value
    layout = weight.layout
    return pack(value.as_strided(layout.shape, layout.stride(), layout.storage_offset()), weight.form)
