"""The linear recurrence by definition, one step after another: slow, and the judge of every faster form."""

import torch
from torch import Tensor

from elman.shapes import Lengths


def run(
    decay: Tensor, inputs: Tensor, initial: Tensor, lengths: Lengths | None = None, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    decay, inputs, initial = alike(decay, inputs, initial)
    state, history = initial, []
    steps = list(zip(decay.unbind(1), inputs.unbind(1), strict=True))
    for keep, new in reversed(steps) if reverse else steps:
        state = keep * state + new
        history.append(state)
    states = torch.stack(history[::-1] if reverse else history, dim=1) if history else inputs
    return states, last_state(states, initial, lengths, reverse)


def last_state(history: Tensor, initial: Tensor, lengths: Lengths | None, reverse: bool = False) -> Tensor:
    """Of each row, the state after its last real position; from right to left that is the first position."""
    if history.shape[1] == 0:
        return initial
    if lengths is None or reverse:
        return history[:, 0 if reverse else -1].clone()  # a view would keep the whole history alive
    lengths = lengths.to(history.device)
    rows = torch.arange(len(history), device=history.device)
    last = history[rows, (lengths - 1).clamp(min=0)]
    return torch.where((lengths > 0).view(-1, *[1] * (last.dim() - 1)), last, initial)


def alike(decay: Tensor, inputs: Tensor, initial: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One dtype, in float32 at least: bfloat16 would lose small updates to a large state."""
    kind = common(decay, inputs, initial)
    return decay.to(kind).expand(inputs.shape), inputs.to(kind), initial.to(kind)


def common(*tensors: Tensor) -> torch.dtype:
    """The dtype in which all of them are computed."""
    kind = torch.float32
    for tensor in tensors:
        kind = torch.promote_types(kind, tensor.dtype)
    return kind
