"""The selective scan in torch, one piece of time after another with gradient checkpointing; and its definition."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from elman.ops.scan import linear_scan, linear_scan_reference
from elman.shapes import Sequence

CPU_STATES = 2**20  # elements of the states of one piece
GPU_STATES = 2**27


class Selection(NamedTuple):
    """The input-dependent parameters; with step size 0 the state does not change."""

    delta: Tensor  # Δ (..., channels)
    write: Tensor  # B (..., size)
    read: Tensor  # C (..., size)


def reference(
    x: Sequence, selection: Selection, rate: Tensor, initial: Tensor, skip: Tensor | None, gate: Sequence | None
) -> tuple[Sequence, Tensor]:
    """The definition, with all states in memory."""
    delta, write, read = selection
    decay = (delta.unsqueeze(-1) * rate).exp()
    history, final = linear_scan_reference(decay, (delta * x).unsqueeze(-1) * write.unsqueeze(2), initial)
    return _out((history * read.unsqueeze(2)).sum(-1), x, skip, gate), final


def run(
    x: Sequence, selection: Selection, rate: Tensor, initial: Tensor, skip: Tensor | None, gate: Sequence | None
) -> tuple[Sequence, Tensor]:
    """The reference's values and gradients."""
    max_states = CPU_STATES if x.device.type == "cpu" else GPU_STATES
    steps = max(1, max_states // max(1, initial.numel()))
    outputs, state = [], initial
    for piece, *parts in zip(*(part.split(steps, 1) for part in (x, *selection)), strict=True):
        given = piece, Selection(*parts), rate, state
        if torch.is_grad_enabled() and x.shape[1] > steps:
            y, state = checkpoint(_piece, *given, use_reentrant=False, preserve_rng_state=False)
        else:
            y, state = _piece(*given)
        outputs.append(y)
    return _out(torch.cat(outputs, 1), x, skip, gate), state


def _piece(x: Sequence, selection: Selection, rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    delta, write, read = selection
    decay = (delta.unsqueeze(-1) * rate).exp_()  # in place: allocating memory costs more than the exponential
    history, state = linear_scan(decay, (delta * x).unsqueeze(-1) * write.unsqueeze(2), state)
    return (history @ read.unsqueeze(-1)).squeeze(-1), state


def _out(y: Sequence, x: Sequence, skip: Tensor | None, gate: Sequence | None) -> Sequence:
    y = y if skip is None else y + skip * x
    return y if gate is None else y * F.silu(gate)
