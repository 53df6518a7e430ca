"""The linear recurrence by definition, a loop over time: the reference for every faster form."""

import torch
from torch import Tensor

from elman.shapes import Lengths


def run(
    decay: Tensor, inputs: Tensor, initial: Tensor, lengths: Lengths | None = None, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    decay, inputs, initial = promote(decay, inputs, initial)
    state, history = initial, []
    steps = list(zip(decay.unbind(1), inputs.unbind(1), strict=True))
    for keep, new in reversed(steps) if reverse else steps:
        state = keep * state + new
        history.append(state)
    states = torch.stack(history[::-1] if reverse else history, dim=1) if history else inputs
    return states, last_state(states, initial, lengths, reverse)


def last_state(history: Tensor, initial: Tensor, lengths: Lengths | None, reverse: bool = False) -> Tensor:
    """The state after each row's last real position; in reverse, that at its first position."""
    if history.shape[1] == 0:
        return initial
    if lengths is None or reverse:
        return history[:, 0 if reverse else -1].clone()  # a view would keep the history in memory
    lengths = lengths.to(history.device)
    rows = torch.arange(len(history), device=history.device)
    last = history[rows, (lengths - 1).clamp(min=0)]
    return torch.where((lengths > 0).view(-1, *[1] * (last.dim() - 1)), last, initial)


def promote(decay: Tensor, inputs: Tensor, initial: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All in one dtype, float32 at least: bfloat16 would lose small updates of a large state."""
    dtype = common_dtype(decay, inputs, initial)
    return decay.to(dtype).expand(inputs.shape), inputs.to(dtype), initial.to(dtype)


def common_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype of the computation: float32 at least."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype
