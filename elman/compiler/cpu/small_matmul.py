"""Matmuls so small that torch's call overhead exceeds the arithmetic: a batch of them in one call of our C++."""

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.compiler.cpu.runtime import Integer, gemm_library

MAX_WORK = 5 << 18  # multiplications of one matmul; above, torch is as fast (measured)
OVERWRITE, ACCUMULATE = 0, 1  # what happens to the old result; or the address of a row to start each row from (a bias)


def is_small(x: Tensor, *sizes: int) -> bool:
    """Whether matmuls of these sizes, one of them of x, are computed here."""
    multiplications = 1
    for size in sizes:
        multiplications *= size
    return multiplications <= MAX_WORK and x.is_contiguous()


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
