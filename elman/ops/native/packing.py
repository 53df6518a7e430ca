"""Weights as the kernels read them: panels of up to 64 results, one after another, so that memory is read in order."""

import torch
from torch import Tensor
from torch.nn import functional as F

LANES = 16  # results side by side, as in kernels.h
PANEL = 4 * LANES


def pack(matrix: Tensor, form: str) -> Tensor:
    """The bytes of a matrix (inner, results) for `multiply_fp32` or `multiply_int8`; several one by one."""
    if matrix.dim() > 2:
        return torch.cat([pack(part, form) for part in matrix])
    matrix = F.pad(matrix, (0, -matrix.shape[1] % LANES))
    full = matrix.shape[1] // PANEL * PANEL
    panels = list(matrix[:, :full].split(PANEL, 1)) if full else []
    panels += [matrix[:, full:]] if full < matrix.shape[1] else []
    pieces = [_as_floats(panel) if form == "fp32" else _as_bytes(panel) for panel in panels]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.uint8)


def packed_size(inner: int, results: int, form: str) -> int:
    """How many bytes that will be."""
    results += -results % LANES
    return 4 * inner * results if form == "fp32" else (inner + -inner % 4 + 8) * results


def _as_floats(panel: Tensor) -> Tensor:
    return panel.contiguous().view(-1).view(torch.uint8)


def _as_bytes(panel: Tensor) -> Tensor:
    """From -127 to 127 with a scale for each result; then the scales, and the sum of each result's weights."""
    scales = panel.abs().amax(0).div(127)
    scales = torch.where(scales > 0, scales, 1)
    rounded = F.pad((panel / scales).round(), (0, 0, 0, -panel.shape[0] % 4))
    fours = rounded.to(torch.int8).view(-1, 4, panel.shape[1]).transpose(1, 2).contiguous()
    sums = rounded.sum(0).to(torch.int32)
    return torch.cat([fours.view(-1).view(torch.uint8), scales.view(torch.uint8), sums.view(torch.uint8)])
