"""Weights as the kernels read them: panels of 16 results, one after another, so that memory is read in order."""

import torch
from torch import Tensor
from torch.nn import functional as F

LANES, GAP = 16, 2  # results side by side, and unused rows after them, as in kernels.h


def pack(matrix: Tensor, form: str) -> Tensor:
    """The bytes of a matrix (inner, results) for `multiply_fp32` or `multiply_int8`; several one by one."""
    if matrix.dim() > 2:
        return torch.cat([pack(part, form) for part in matrix])
    matrix = F.pad(matrix, (0, -matrix.shape[1] % LANES))
    panels = _as_floats(matrix) if form == "fp32" else _as_bytes(matrix)
    return panels.contiguous().view(-1).view(torch.uint8)


def packed_size(inner: int, results: int, form: str) -> int:
    """How many bytes that will be."""
    results += -results % LANES
    return 4 * (inner + GAP) * results if form == "fp32" else (inner + -inner % 4 + 8) * results


def _as_floats(matrix: Tensor) -> Tensor:
    """(panels, inner, 16)"""
    return F.pad(matrix, (0, 0, 0, GAP)).unflatten(1, (-1, LANES)).transpose(0, 1)


def _as_bytes(matrix: Tensor) -> Tensor:
    """From -127 to 127 with a scale for each result; then the scales, and the sum of each result's weights."""
    scales = matrix.abs().amax(0).div(127)
    scales = torch.where(scales > 0, scales, 1)
    rounded = F.pad((matrix / scales).round(), (0, 0, 0, -matrix.shape[0] % 4))
    fours = rounded.to(torch.int8).unflatten(0, (-1, 4)).unflatten(2, (-1, LANES)).permute(2, 0, 3, 1)
    parts = [fours.flatten(1), *(part.view(torch.int8).view(-1, 4 * LANES) for part in (scales, rounded.sum(0).int()))]
    return torch.cat(parts, 1)
