"""The reference form: a loop over time. Every faster form is tested against it, and all taps fire in it."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.ops import taps
from elman.ops.state import choose, leaves
from elman.shapes import Lengths, State


def run(cell: Any, x: Tensor, state: State, lengths: Lengths | None) -> tuple[Tensor, State]:
    """The input projection of all steps at once, then one step after another; a finished row keeps its state.

    The axes of inputs and outputs behind batch and time may have any shape (batch, time, ...).
    """
    time = x.shape[1]
    if time == 0:
        return x.new_zeros(len(x), 0, cell.hidden_size), state
    active: tuple[Tensor, ...] | None = None
    if lengths is not None:
        active = (torch.arange(time, device=x.device) < lengths.to(x.device).unsqueeze(1)).unbind(1)
    in_step = taps.stepping if taps.listening() else nullcontext
    outputs = []
    # unbind is twice as fast as indexing [:, t], whose backward pass fills a whole sequence with zeros each time
    for t, drive in enumerate(cell.drive(x).unbind(1)):
        with in_step():
            output, new = cell.step(drive, state) if t else _checked_step(cell, drive, state)
        state = new if active is None else choose(active[t], new, state)
        outputs.append(output)
    return torch.stack(outputs, dim=1), state


def _checked_step(cell: Any, drive: Tensor, state: State) -> tuple[Tensor, State]:
    """The first step, with checks of the contract of a step: its errors are for the author of the cell."""
    before = [(part, part._version) for part in leaves(state) if not part.is_inference()]
    result = cell.step(drive, state)
    name = getattr(cell, "name", type(cell).__name__)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ConfigError(f"the step of {name} returns a {type(result).__name__}, not its output and the new state")
    if any(part._version != version for part, version in before):
        raise ConfigError(
            f"the step of {name} modifies its state in place; it must return a new one: state + x, not state.add_(x)"
        )
    old, new = ([tuple(part.shape) for part in leaves(one)] for one in (state, result[1]))
    if old != new:
        raise ConfigError(f"the step of {name} changes the shapes of its state from {old} to {new}")
    return result
