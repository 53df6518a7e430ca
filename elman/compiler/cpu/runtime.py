"""Loads the machine code of a StepIR and launches it, with the rows of a batch divided among threads."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elman.compiler.cpu import build
from elman.compiler.cpu.c_source import c_type
from elman.compiler.cpu.emit import CppFunction, source
from elman.compiler.ir import StepIR

MIN_THREAD_WORK = 1 << 25  # multiplications of a thread; below, waking it takes as long
Address, Integer = ctypes.c_void_p, ctypes.c_int64


class SequenceKernel:
    """A compiled function (`emit`) for any number of rows and steps."""

    def __init__(self, program: StepIR, dtype: torch.dtype, function: Any):
        self.size, self.function = program.size, function
        library = gemm_library(dtype)
        self.callbacks = [ctypes.cast(one, Address).value or 0 for one in (library.gemm, library.pack)]
        matmuls = [node for node in program.nodes if node.op == "matmul"]
        self.multiplications = program.size**2 * sum(len(node.args) for node in matmuls)  # of one row in one step

    def __call__(
        self,
        batch: int,
        time: int,
        tensors: list[tuple[int, int, int]],
        lengths: Tensor | None = None,
        reverse: bool = False,
    ) -> None:
        """`tensors`, weights first: the address of each, and the strides of its rows and steps in elements."""
        args = [time, self.size, reverse, 0 if lengths is None else lengths.data_ptr(), *self.callbacks]
        for tensor in tensors:
            args += tensor
        _parallel_rows(self.function, batch, time * self.multiplications, (Integer * len(args))(*args))


def _parallel_rows(function: Any, batch: int, row_work: int, args: Any) -> None:
    """Rows are independent. The threads end with the call, since a forked process would not have them."""
    threads = min(torch.get_num_threads(), batch, batch * row_work // MIN_THREAD_WORK)
    if threads < 2:
        return function(0, batch, args)
    bounds = [batch * n // threads for n in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda start, end: function(start, end, args), bounds, bounds[1:]))


def load_kernels(dtype: torch.dtype, functions: list[tuple[StepIR, CppFunction]]) -> list[SequenceKernel]:
    """All of them compiled into one library."""
    library = _library(source(dtype, [emitted for _, emitted in functions]))
    kernels = []
    for program, emitted in functions:
        function = library[emitted.name]
        function.argtypes, function.restype = [Integer, Integer, Address], None
        kernels.append(SequenceKernel(program, dtype, function))
    return kernels


@cache
def _library(text: str) -> ctypes.CDLL:
    return build.library(text, "scalar_math.h")


@cache
def gemm_library(dtype: torch.dtype) -> ctypes.CDLL:
    """Packing and GEMM, shared by all programs of a dtype."""
    text = (Path(__file__).parent / "gemm.h").read_text()
    library = _library(f"typedef {c_type(dtype)} T;\n{text}")
    library.small_gemms.argtypes, library.small_gemms.restype = [Address, Integer], None
    return library
