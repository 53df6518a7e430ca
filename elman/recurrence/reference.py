"""The reference form: the definition, one step after another. It passes every tap and judges every faster form."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.ops import taps
from elman.ops.state import choose, tensors
from elman.shapes import Lengths, State


def run(cell: Any, x: Tensor, state: State, lengths: Lengths | None) -> tuple[Tensor, State]:
    """All of the input's part in one product, then step after step; the state of a finished row stays.

    What a step takes and gives may be vectors, or have any other shape behind batch and time (batch, time, ...).
    """
    time = x.shape[1]
    if time == 0:
        return x.new_zeros(len(x), 0, cell.hidden_size), state
    going: tuple[Tensor, ...] | None = None
    if lengths is not None:
        going = (torch.arange(time, device=x.device) < lengths.to(x.device).unsqueeze(1)).unbind(1)
    each = taps.stepping if taps.listening() else nullcontext
    outputs = []
    # unbind is twice as fast as indexing [:, t], whose backward pass fills a whole sequence with zeros each time
    for t, drive in enumerate(cell.drive(x).unbind(1)):
        with each():
            output, new = cell.step(drive, state) if t else _first(cell, drive, state)
        state = new if going is None else choose(going[t], new, state)
        outputs.append(output)
    return torch.stack(outputs, dim=1), state


def _first(cell: Any, drive: Tensor, state: State) -> tuple[Tensor, State]:
    """The step itself, and a look at what every step promises: whoever wrote the cell is told here what it breaks."""
    before = [(part, part._version) for _, part in tensors(state) if not part.is_inference()]
    result = cell.step(drive, state)
    name = getattr(cell, "name", type(cell).__name__)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ConfigError(f"the step of {name} gives a {type(result).__name__}; it gives its output and the new state")
    if any(part._version != version for part, version in before):
        raise ConfigError(
            f"the step of {name} changes the state that it is given; it makes a new one: state + x, not state.add_(x)"
        )
    old, new = ([tuple(part.shape) for _, part in tensors(one)] for one in (state, result[1]))
    if old != new:
        raise ConfigError(f"the step of {name} makes a state of {new} from one of {old}; a state keeps its form")
    return result
