"""What backward needs of all steps at once: read from what forward stored, or computed from it by one kernel."""

from functools import cached_property

import torch
from torch import Tensor

from elman.compiler.autodiff import Adjoint
from elman.compiler.interpreter import group_matmuls
from elman.compiler.ir import ROW, UNITS, Node, StepIR, dependencies
from elman.compiler.triton.recompute import Filling

THERE = ("load", "state", "active")  # what needs not be stored for backward


class Look:
    """What forward stored (ways, places, rows, slots, width), step by step, for one way."""

    def __init__(self, step: StepIR, stored: tuple[int, ...], history: Tensor, way: int, batch: int, down: bool):
        self.step, self.stored, self.history, self.way, self.batch, self.down = step, stored, history, way, batch, down

    def at(self, index: int) -> Tensor:
        """The value of a stored node at each step (batch, time, H)."""
        return self._slots(index, index in self.step.next_state and not self.down)

    def state(self, part: int) -> Tensor:
        """A part of the state before each step."""
        return self._slots(self.step.next_state[part], self.down)

    def _slots(self, index: int, first: int) -> Tensor:
        history = self.history
        way, place, row, slot, _ = history.stride()
        start = history.storage_offset() + self.way * way + self.stored.index(index) * place + first * slot
        # what slices give, in one operation of four
        return history.as_strided((self.batch, history.shape[3] - 1, self.step.size), (row, slot, 1), start)


class Recall:
    """What backward needs of a step: what forward has to store for it, and how the rest is found; all that is the same
    in every call."""

    def __init__(self, step: StepIR, adjoint: Adjoint):
        self.step, self.kept = step, adjoint.saved
        self.heard = group_matmuls(step, adjoint.matmuls)
        self.kinds = step.shapes()
        self.needed = tuple(dict.fromkeys((*self.kept, *(arg for args in self.heard for arg in args))))
        self.remembered = self._remembered()
        # sums of squares need their digits; elsewhere what the products have is what the gates saw
        self.wide = torch.float32 if any(node.op == "sum" for node in step.nodes) else None
        there = [index for index in self.kept if index in self.remembered or step.nodes[index].op in THERE]
        self.filled = tuple(index for index in self.kept if index not in there)
        self._fillings: dict[int, Filling] = {}

    def _remembered(self) -> tuple[int, ...]:
        """What no kernel can find afterwards, one number for each unit: all of it, but for numbers that units share;
        of these the products that they are made of."""
        nodes, kinds = self.step.nodes, self.kinds
        shared = dependencies(nodes, [index for index in self.kept if kinds[index] == ROW])
        products = [index for index in sorted(shared) if nodes[index].op == "matmul"]
        own = [index for index in self.needed if kinds[index] == UNITS and nodes[index].op not in THERE]
        return tuple(dict.fromkeys((*self.step.next_state, *products, *own)))

    @cached_property
    def reads_drive(self) -> bool:
        """Whether anything needed is found by what drove the step."""
        known = [Node("known") if n in self.remembered else node for n, node in enumerate(self.step.nodes)]
        return any(known[index].op == "load" for index in dependencies(known, self.needed))

    def filling(self, itemsize: int) -> Filling:
        """Of what was not stored."""
        if itemsize not in self._fillings:
            self._fillings[itemsize] = Filling(self.step, self.filled, self.remembered, itemsize)
        return self._fillings[itemsize]


class Values:
    """Nodes of the step at all times, from what forward stored."""

    def __init__(self, recall: Recall, look: Look, drive: Tensor, weights: dict[str, Tensor], lengths: Tensor | None):
        self.recall, self.step, self.look = recall, recall.step, look
        self.drive, self.weights, self.lengths = drive, weights, lengths
        self.known: dict[int, Tensor] = {}  # (batch, time, H), or (batch, time, 1) where all units share a number

    def kept(self) -> list[Tensor]:
        """What the adjoint loads: (batch, time, H), or (batch, time) where all units share a number."""
        recall = self.recall
        if recall.filled:
            kind = recall.wide or self.look.history.dtype
            filling = recall.filling(self.look.history.itemsize)
            self.known = filling(self._value, self.weights, self.drive.shape[:2], kind)
        found = [(self._value(index), recall.kinds[index]) for index in recall.kept]
        return [value if kind == UNITS else value.squeeze(-1) for value, kind in found]

    def flat(self, index: int) -> Tensor:
        """What a product took (batch · time, H), in its dtype."""
        return self._value(index).reshape(-1, self.step.size).to(self.look.history.dtype)

    def _value(self, index: int) -> Tensor:
        """What is known or was stored."""
        size, node = self.step.size, self.step.nodes[index]
        if index in self.known:
            return self.known[index]
        if node.op == "load":
            return self.drive[..., node.detail[1] * size : (node.detail[1] + 1) * size]
        if node.op == "state":
            return self.look.state(node.detail[0])
        if node.op == "active":
            assert self.lengths is not None
            time = torch.arange(self.drive.shape[1], device=self.drive.device)
            return (time < self.lengths.to(time.device).unsqueeze(1)).unsqueeze(-1)
        return self.look.at(index)
