"""A compiled step: its library, its packed weights and their memory."""

import ctypes
import mmap
from typing import Any

import torch
from torch import Tensor, fx

from elman.compiler.cpu import build
from elman.compiler.cpu.step.lowering import ALIGNMENT, LoweredStep, Weight
from elman.compiler.cpu.step.packing import pack

HUGE = 2**21  # bytes of a huge page: fewer TLB misses while weights stream in


class CompiledStep:
    """`step(token, state) -> (logits, state)` in machine code, at batch 1; a `Runner` runs it."""

    def __init__(self, lowered: LoweredStep, parameters: list[Tensor]):
        self.lowered = lowered
        self.library = build.library(lowered.source)
        share_work = ctypes.cast(build.runtime().share_work, ctypes.c_void_p)
        ctypes.c_void_p.in_dll(self.library, "share").value = share_work.value
        self.renew(parameters)

    def renew(self, parameters: list[Tensor]) -> None:
        """Packs the weights again, after the model's have changed."""
        values = _constants(self.lowered, parameters)
        arrays = [_array(weight, values[weight.node]) for weight in self.lowered.weights]
        packed = [n for n, weight in enumerate(self.lowered.weights) if weight.format != "plain"]
        sizes = [-(-arrays[n].nbytes // ALIGNMENT) * ALIGNMENT for n in packed]
        self.arena = aligned(sum(sizes))
        start = 0
        for n, size in zip(packed, sizes, strict=True):
            array = arrays[n]
            arrays[n] = self.arena[start : start + array.nbytes].copy_(array)
            start += size
        self.arrays = arrays
        self.weights = pointers(arrays)

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights; each step reads all of them, except those of experts that are not chosen."""
        return self.arena.nbytes


def address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def pointers(tensors: list[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


def aligned(size: int) -> Tensor:
    """Zeroed memory, page-aligned, in huge pages where the system has them."""
    memory = mmap.mmap(-1, max(size, 1) + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE
    return whole[start : start + size]


def _constants(lowered: LoweredStep, parameters: list[Tensor]) -> dict[fx.Node, Tensor]:
    """Folds constants: all nodes that depend on weights alone are computed once, by torch."""
    values: dict[fx.Node, Any] = dict(zip(lowered.parameters, parameters, strict=True))
    with torch.no_grad():
        for node in lowered.constants:
            if node.op == "call_function":
                keywords = {key: value for key, value in node.kwargs.items() if key not in ("device", "pin_memory")}
                values[node] = node.target(*fx.node.map_arg(node.args, values.__getitem__), **keywords)  # type: ignore
    return values


def _array(weight: Weight, value: Tensor) -> Tensor:
    value = value.detach().resolve_conj().contiguous()
    if weight.format == "plain":
        return value
    layout = weight.layout
    return pack(value.as_strided(layout.shape, layout.stride(), layout.storage_offset()), weight.format)
