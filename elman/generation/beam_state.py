"""The states of beams: what differs between them moves with them, what they share stays where it is."""

from torch import Tensor

from elman.ops.state import map_state, tensors
from elman.shapes import State


class SharedParts:
    """Knows which tensors no step has changed: the same for all beams of a row, like a source and its keys."""

    def __init__(self, state: State):
        self.parts = {id(part): part for _, part in tensors(state)}  # held, so that no other can get its id

    def take(self, state: State, rows: Tensor, beams: Tensor, width: int) -> State:
        """For each of the rows (kept,), which had `width` beams, the states of `beams` (kept, any number)."""
        index = (rows.unsqueeze(1) * width + beams).flatten()
        all_stay = beams.shape[1] == width and len(index) == len(next(tensors(state))[1])
        kept: dict[int, Tensor] = {}

        def move(part: Tensor) -> Tensor:
            if id(part) not in self.parts:
                return part.index_select(0, index)
            part = part if all_stay else part.index_select(0, index)
            kept[id(part)] = part
            return part

        state = map_state(move, state)
        self.parts = kept
        return state
