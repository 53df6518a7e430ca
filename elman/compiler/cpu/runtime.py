"""Machine code of a StepIR, launched with the rows of a batch divided among threads; and matmuls so small that torch's
call overhead exceeds the arithmetic: a batch of them in one call."""

import ctypes
import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.compiler.cpu import build
from elman.compiler.cpu.build import c_type
from elman.compiler.cpu.emit import CppFunction, source
from elman.compiler.ir import StepIR

MIN_THREAD_WORK = 1 << 25  # multiplications of a thread; below, waking it takes as long
MAX_WORK = 5 << 18  # multiplications of one small matmul; above, torch is as fast (measured)
OVERWRITE, ACCUMULATE = 0, 1  # what happens to the old result; or the address of a row to start each row from (a bias)
Descriptor = tuple[int, int, int]  # of a tensor: its address, and the strides of its rows and steps in elements
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
        tensors: list[Descriptor],
        lengths: Tensor | None = None,
        chosen: Tensor | None = None,
        reverse: bool = False,
    ) -> None:
        """`tensors`, weights first. `chosen` (batch, time): the rows of the drive, which is then a table."""
        ends, rows = (0 if one is None else one.data_ptr() for one in (lengths, chosen))
        args = [time, self.size, reverse, ends, *self.callbacks, rows]
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


def is_small(x: Tensor, *sizes: int) -> bool:
    """Whether matmuls of these sizes, one of them of x, are computed here."""
    return math.prod(sizes) <= MAX_WORK and x.is_contiguous()


def run_gemms(jobs: list[int], dtype: torch.dtype) -> None:
    """One GEMM y = x @ w after another. A job is twelve integers:

    x: address, row stride, column stride (one of them 1), rows; w: address, row stride, column stride, columns; the
    inner size; y: address, row stride, OVERWRITE, ACCUMULATE or a bias. Without x, the rows of w are summed.
    """
    gemm_library(dtype).small_gemms((Integer * len(jobs))(*jobs), len(jobs) // 12)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear` for a contiguous weight."""
    (batch, time, inputs), width = x.shape, weight.shape[0]
    if not is_small(x, batch * time, width, inputs):
        return F.linear(x, weight, bias)
    y = x.new_empty(batch, time, width)
    bias = bias if bias is None else bias.contiguous()
    mode = OVERWRITE if bias is None else bias.data_ptr()
    factors = x.data_ptr(), inputs, 1, batch * time, weight.data_ptr(), 1, inputs, width, inputs
    run_gemms([*factors, y.data_ptr(), width, mode], x.dtype)
    return y
