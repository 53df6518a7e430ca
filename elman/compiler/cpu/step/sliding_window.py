"""Windows that move on: a state that drops its oldest place for a new one is not copied, its memory has room to slide.

Caches of attention and windows of convolutions are written as `cat([state, new])[1:]`. In a program such a state lies
in a longer strip of memory: a step writes behind its end and moves its start; when the strip is full, all moves back.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

aten = torch.ops.aten
ROOM = 64  # steps that a short window slides before it is moved back; a long one slides its own length
HEAD = 64  # bytes before the strip: where the window starts


class Slide(NamedTuple):
    axis: int
    places: int
    added: int  # new places in each step
    shape: tuple[int, ...]  # of the whole strip

    def strip(self, dtype: torch.dtype) -> Tensor:
        """Memory for it, with its head: the start is 0."""
        return torch.zeros(HEAD + math.prod(self.shape) * dtype.itemsize, dtype=torch.uint8)

    def window(self, strip: Tensor, dtype: torch.dtype) -> Tensor:
        """The state as it lies in the strip now."""
        start = int(strip[:8].view(torch.int64))
        return strip[HEAD:].view(dtype).view(self.shape).narrow(self.axis, start, self.places)

    def pointer(self, kind: str, place: str) -> str:
        """C: the window's first number, after which the window counts as moved."""
        outer, inner = math.prod(self.shape[: self.axis]), math.prod(self.shape[self.axis + 1 :])
        sizes = f"{outer}, {self.shape[self.axis]}, {inner}, {self.places}, {self.added}"
        return f"slide<{kind}>((void*){place}, {sizes})"


def find_slides(state: list[Any], following: list[Any]) -> dict[fx.Node, Slide]:
    """Which parts of the state only move on, by the node that puts old and new places together."""
    found: dict[fx.Node, Slide] = {}
    for old, new in zip(state, following, strict=True):
        part = new
        while part.target in (aten.clone.default, aten._to_copy.default) and _dtype(part) == _dtype(part.args[0]):
            part = part.args[0]
        if part.target is not aten.slice.Tensor or part.args[0].target is not aten.cat.default:
            continue
        joined, axis, start = part.args[:3]
        shape, along = tuple(old.meta["val"].shape), (*joined.args, 0)[1] % old.meta["val"].dim()
        places, added = shape[along], joined.meta["val"].shape[along] - shape[along]
        moves = axis % len(shape) == along and start == added and tuple(part.meta["val"].shape) == shape
        alone = joined.args[0][0] is old and len(joined.args[0]) == 2 and list(old.users) == [joined]
        if moves and alone and places and _dtype(joined) == _dtype(old):
            length = places + added * max(ROOM, places)
            found[joined] = Slide(along, places, added, (*shape[:along], length, *shape[along + 1 :]))
    return found


def _dtype(node: fx.Node) -> torch.dtype:
    return node.meta["val"].dtype
