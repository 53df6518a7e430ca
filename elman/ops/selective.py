"""The selective scan (Gu & Dao, 2023): a diagonal state space whose step, write and read depend on the input.

    h_t = exp(Δ_t λ) · h_{t-1} + Δ_t x_t B_t,   y_t = C_t · h_t

The states of all positions would take (time × channels × size) numbers several times over; so time is cut into
stretches, and the backward pass computes a stretch's states again from the one at which it began.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from elman.ops.scan import linear_scan
from elman.shapes import Sequence

CPU_STATES = 2**20  # numbers in the states of one stretch
GPU_STATES = 2**27


class Selection(NamedTuple):
    """What the input chooses at each step; step size 0 leaves the state as it is."""

    delta: Tensor  # Δ (..., channels)
    write: Tensor  # B (..., size)
    read: Tensor  # C (..., size)


def selective_scan(x: Sequence, chosen: Selection, rate: Tensor, initial: Tensor) -> tuple[Sequence, Tensor]:
    """Outputs (batch, time, channels) and the last state (batch, channels, size); `rate` (λ) is (channels, size)."""
    most = CPU_STATES if x.device.type == "cpu" else GPU_STATES
    steps = max(1, most // max(1, initial.numel()))
    outputs, state = [], initial
    for piece, *parts in zip(*(part.split(steps, 1) for part in (x, *chosen)), strict=True):
        given = piece, Selection(*parts), rate, state
        if torch.is_grad_enabled() and x.shape[1] > steps:
            y, state = checkpoint(_stretch, *given, use_reentrant=False, preserve_rng_state=False)
        else:
            y, state = _stretch(*given)
        outputs.append(y)
    return torch.cat(outputs, 1), state


def _stretch(x: Sequence, chosen: Selection, rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    delta, write, read = chosen
    decay = (delta.unsqueeze(-1) * rate).exp_()  # in place: fresh memory costs more than the exponential
    history, state = linear_scan(decay, (delta * x).unsqueeze(-1) * write.unsqueeze(2), state)
    return (history @ read.unsqueeze(-1)).squeeze(-1), state
