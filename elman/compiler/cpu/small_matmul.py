"""Products so small that torch takes longer to begin each than to multiply: all of them in one call of our C++."""

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.compiler.cpu.runtime import Number, panels

SMALL = 5 << 18  # multiplications of one product, as measured: above, torch is as fast
FRESH, ADDED = 0, 1  # what a result holds before; or the address of a row to begin each of its rows with


def small(x: Tensor, *sizes: int) -> bool:
    """Whether products of these sizes, one of them with x, are made here."""
    multiplications = 1
    for size in sizes:
        multiplications *= size
    return multiplications <= SMALL and x.is_contiguous()


def multiply(jobs: list[int], kind: torch.dtype) -> None:
    """One after another, result = x @ w. A job has twelve numbers:

    the address of x, how far apart its rows and inner places lie (one of them 1), its rows; the address of w, how far
    apart its inner places and columns lie, its columns; inner places; the address of the result, how far apart its
    rows lie, what it holds before. Without x, the rows of w are summed.
    """
    panels(kind).products((Number * len(jobs))(*jobs), len(jobs) // 12)


def linear(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """As torch has it, for a matrix in one piece."""
    (batch, time, inputs), width = x.shape, matrix.shape[0]
    if not small(x, batch * time, width, inputs):
        return F.linear(x, matrix, bias)
    found = x.new_empty(batch, time, width)
    bias = bias if bias is None else bias.contiguous()
    before = FRESH if bias is None else bias.data_ptr()
    factors = x.data_ptr(), inputs, 1, batch * time, matrix.data_ptr(), 1, inputs, width, inputs
    multiply([*factors, found.data_ptr(), width, before], x.dtype)
    return found
