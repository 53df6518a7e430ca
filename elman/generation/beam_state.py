"""Reordering of beam states: tensors shared by all beams of a row, such as encoder keys, are not copied."""

from torch import Tensor

from elman.ops.state import map_state, tensors
from elman.shapes import State


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
