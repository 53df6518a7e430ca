"""Packs weight matrices for the GEMV kernels: panels of 16 columns, so that memory is read in order.

fp32: [W[0, c..c+16)  W[1, c..c+16)  ...  W[inner-1, c..c+16)  gap] for c = 0, 16, 32, ...
int8: the same in groups of four rows, then the scale and the sum of each column
"""

import torch
from torch import Tensor
from torch.nn import functional as F

LANES, GAP = 16, 2  # columns of a panel, and unused rows behind it, as in kernels.h


def pack(matrix: Tensor, format: str) -> Tensor:
    """The bytes of a matrix (inner, columns) for `gemv_fp32` or `gemv_int8`; of several matrices, one after another."""
    if matrix.dim() > 2:
        return torch.cat([pack(part, format) for part in matrix])
    matrix = F.pad(matrix, (0, -matrix.shape[1] % LANES))
    panels = _fp32_panels(matrix) if format == "fp32" else _int8_panels(matrix)
    return panels.contiguous().view(-1).view(torch.uint8)


def packed_size(inner: int, columns: int, format: str) -> int:
    """The length of `pack`'s result in bytes."""
    columns += -columns % LANES
    return 4 * (inner + GAP) * columns if format == "fp32" else (inner + -inner % 4 + 8) * columns


def _fp32_panels(matrix: Tensor) -> Tensor:
    """(panels, inner, 16)"""
    return F.pad(matrix, (0, 0, 0, GAP)).unflatten(1, (-1, LANES)).transpose(0, 1)


def _int8_panels(matrix: Tensor) -> Tensor:
    """Symmetric quantisation to -127 … 127 with a scale for each column; the sums undo the input's zero point."""
    scales = matrix.abs().amax(0).div(127)
    scales = torch.where(scales > 0, scales, 1)
    rounded = F.pad((matrix / scales).round(), (0, 0, 0, -matrix.shape[0] % 4))
    fours = rounded.to(torch.int8).unflatten(0, (-1, 4)).unflatten(2, (-1, LANES)).permute(2, 0, 3, 1)
    parts = [fours.flatten(1), *(part.view(torch.int8).view(-1, 4 * LANES) for part in (scales, rounded.sum(0).int()))]
    return torch.cat(parts, 1)
