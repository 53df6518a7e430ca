"""What backward needs of all steps at once: read from what forward stored, or computed from it: products by torch, all
else by one kernel."""

from collections.abc import Iterable

import torch
from torch import Tensor

from elman.ops.recurrence.adjoint import Adjoint
from elman.ops.recurrence.evaluating import multiplied, stacked, together
from elman.ops.recurrence.filling import Filling
from elman.ops.recurrence.units import UNITS, Program


class Look:
    """What forward stored (ways, places, rows, slots, width), step by step, for one way."""

    def __init__(self, step: Program, stored: tuple[int, ...], history: Tensor, way: int, batch: int, down: bool):
        self.step, self.stored, self.history, self.way, self.batch, self.down = step, stored, history, way, batch, down

    def at(self, index: int) -> Tensor:
        """The value of a stored node at each step (batch, time, H)."""
        return self._slots(index, index in self.step.carried and not self.down)

    def state(self, part: int) -> Tensor:
        """A part of the state before each step."""
        return self._slots(self.step.carried[part], self.down)

    def _slots(self, index: int, first: int) -> Tensor:
        history = self.history
        way, place, row, slot, _ = history.stride()
        start = history.storage_offset() + self.way * way + self.stored.index(index) * place + first * slot
        # what slices give, in one operation of four
        return history.as_strided((self.batch, history.shape[3] - 1, self.step.size), (row, slot, 1), start)


class Recall:
    """How nodes of a step are found from those that forward stored: all that is the same in every call."""

    def __init__(self, step: Program, stored: tuple[int, ...], adjoint: Adjoint):
        self.step, self.stored, self.kept = step, stored, adjoint.kept
        self.groups = together(step)
        self.heard = together(step, adjoint.products)
        kinds = step.kinds()
        self.shared = {index for index in self.kept if kinds[index] != UNITS}
        # sums of squares need their digits; elsewhere what the products have is what the gates saw
        self.wide = torch.float32 if any(node.op == "total" for node in step.nodes) else None
        self.sums = [] if self.wide else self._sums()
        self._fillings: dict[tuple[tuple[int, ...], frozenset[int], int], Filling] = {}

    def filling(self, wanted: tuple[int, ...], known: Iterable[int], itemsize: int) -> Filling:
        """Of some nodes, where these are known besides those that were stored."""
        key = wanted, frozenset(known), itemsize
        if key not in self._fillings:
            self._fillings[key] = Filling(self.step, wanted, key[1].union(self.stored), itemsize)
        return self._fillings[key]

    def _sums(self) -> list[tuple[int, int, list[int], list[int]]]:
        """Products that are added to neighbouring parts of the drive: what they multiply, the first part, the
        products, and the sums."""
        nodes = self.step.nodes
        pairs = {}
        for index in self.kept:
            if nodes[index].op == "add":
                load, product = sorted(nodes[index].args, key=lambda arg: nodes[arg].op)
                if (nodes[load].op, nodes[product].op) == ("load", "product"):
                    pairs[product] = index, nodes[load].detail[1]
        found = []
        for args, group in together(self.step).items():
            first = pairs[group[0]][1] if group[0] in pairs else 0
            neighbours = [(product in pairs) and pairs[product][1] == first + n for n, product in enumerate(group)]
            if len(args) == 1 and all(neighbours):
                found.append((args[0], first, group, [pairs[product][0] for product in group]))
        return found


class Values:
    """Nodes of the step at all times, from what forward stored."""

    def __init__(self, recall: Recall, look: Look, drive: Tensor, weights: dict[str, Tensor], lengths: Tensor | None):
        self.recall, self.step, self.look = recall, recall.step, look
        self.drive, self.weights, self.lengths = drive, weights, lengths
        self.known: dict[int, Tensor] = {}  # (batch, time, H), or (batch, time, 1) where all units share a number

    def kept(self) -> list[Tensor]:
        """What the adjoint loads: (batch, time, H), or (batch, time) where all units share a number."""
        self._add_up()
        self._find(self.recall.kept)
        found = {index: self._value(index) for index in self.recall.kept}
        return [value.squeeze(-1) if index in self.recall.shared else value for index, value in found.items()]

    def flat(self, index: int) -> Tensor:
        """(batch · time, H), in the dtype of the products."""
        self._find((index,))
        return self._value(index).reshape(-1, self.step.size).to(self.look.history.dtype)

    def _find(self, wanted: tuple[int, ...]) -> None:
        """From here on all of them can be asked for."""
        recall, nodes = self.recall, self.step.nodes
        there = ("load", "state", "going")
        missing = [i for i in wanted if i not in self.known and i not in recall.stored and nodes[i].op not in there]
        for index in missing:
            if nodes[index].op == "product" and index not in self.known:
                group = recall.groups[nodes[index].args]
                self._split(multiplied(self.step, group, self.flat, self.weights), group)
        left = tuple(index for index in missing if index not in self.known)
        if not left:
            return
        filling = recall.filling(left, self.known, self.look.history.itemsize)
        self._find(tuple(filling.given))
        kind = recall.wide or self.look.history.dtype
        self.known |= filling(self._value, self.weights, self.drive.shape[:2], kind)

    def _value(self, index: int) -> Tensor:
        """What is known or was stored."""
        size, node = self.step.size, self.step.nodes[index]
        if index in self.known:
            return self.known[index]
        if node.op == "load":
            return self.drive[..., node.detail[1] * size : (node.detail[1] + 1) * size]
        if node.op == "state":
            return self.look.state(node.detail[0])
        if node.op == "going":
            assert self.lengths is not None
            time = torch.arange(self.drive.shape[1], device=self.drive.device)
            return (time < self.lengths.to(time.device).unsqueeze(1)).unsqueeze(-1)
        return self.look.at(index)

    def _add_up(self) -> None:
        """One operation makes products and sums of all that are added to neighbouring parts of the drive."""
        size = self.step.size
        for arg, first, group, sums in self.recall.sums:
            added = self.drive.reshape(-1, self.drive.shape[-1])
            if len(group) * size < added.shape[1]:
                added = added[:, first * size : (first + len(group)) * size]
            matrix = stacked(self.step, group, 0, self.weights)
            self._split(torch.addmm(added.to(matrix.dtype), self.flat(arg), matrix.t()), sums)

    def _split(self, whole: Tensor, nodes: list[int]) -> None:
        parts = whole.view(*self.drive.shape[:2], -1).chunk(len(nodes), -1)
        self.known.update(zip(nodes, parts, strict=True))
