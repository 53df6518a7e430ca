"""Parts of a step of beam search: top-k over a large vocabulary, and reordering of states.

Top-k has two stages: first the groups with the largest maxima, then the elements in them. Tensors of a state that all
beams of a row share, such as encoder keys, are not copied.
"""

import torch
from torch import Tensor

from elman.ops.state import map_state, tensors
from elman.shapes import State

GROUP_SIZE = 32  # elements per group
MIN_SIZE_FOR_GROUPS = 8 * GROUP_SIZE  # smaller inputs take one plain top-k


def topk_of_sums(values: Tensor, offsets: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of values (rows, parts, many) + offsets (rows, parts) in each row, largest first.

    Returns the sums and their indices into parts · many. NaN counts as the largest. The `count` groups with the largest
    maxima contain the top `count` elements, so most sums are never computed.
    """
    many = values.shape[2]
    count = min(count, values.shape[1] * many)
    if many < MIN_SIZE_FOR_GROUPS:
        return (values + offsets.unsqueeze(2)).flatten(1).topk(count, dim=1)
    whole = many - many % GROUP_SIZE
    maxima = values[:, :, :whole].unflatten(2, (-1, GROUP_SIZE)).amax(3)
    if whole < many:
        maxima = torch.cat([maxima, values[:, :, whole:].amax(2, keepdim=True)], 2)
    groups = maxima.shape[2]
    best = (maxima + offsets.unsqueeze(2)).flatten(1).topk(min(count, values.shape[1] * groups), dim=1, sorted=False)[1]
    part, group = best // groups, best % groups
    within = group.unsqueeze(2) * GROUP_SIZE + torch.arange(GROUP_SIZE, device=values.device)
    places = (part.unsqueeze(2) * many + within.clamp(max=many - 1)).flatten(1)
    sums = values.flatten(1).gather(1, places).unflatten(1, (-1, GROUP_SIZE)) + offsets.gather(1, part).unsqueeze(2)
    found, order = sums.masked_fill(within >= many, -torch.inf).flatten(1).topk(count, dim=1)
    return found, places.gather(1, order)


class SharedTensors:
    """Tracks tensors that no step has replaced: they are equal for all beams of a row (encoder outputs, keys)."""

    def __init__(self, state: State):
        self.parts = {id(part): part for _, part in tensors(state)}  # keeps references, so that no id is reused

    def take(self, state: State, rows: Tensor, beams: Tensor, width: int) -> State:
        """The states of `beams` (kept, n) of the rows (kept,), each of which had `width` beams."""
        index = (rows.unsqueeze(1) * width + beams).flatten()
        unchanged = beams.shape[1] == width and len(index) == len(next(tensors(state))[1])
        kept: dict[int, Tensor] = {}

        def move(part: Tensor) -> Tensor:
            if id(part) not in self.parts:
                return part.index_select(0, index)
            part = part if unchanged else part.index_select(0, index)
            kept[id(part)] = part
            return part

        state = map_state(move, state)
        self.parts = kept
        return state
