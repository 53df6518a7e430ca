"""What backward needs of all steps at once: read from what forward stored, or computed from it by torch."""

import torch
from torch import Tensor

from elman.ops.recurrence.evaluating import evaluate, stacked, together
from elman.ops.recurrence.units import UNITS, Program


class Look:
    """What forward stored (places, batch, slots, H), step by step."""

    def __init__(self, step: Program, stored: tuple[int, ...], history: Tensor, down: bool):
        self.step, self.stored, self.history, self.down = step, stored, history, down

    def at(self, index: int) -> Tensor:
        """The value of a stored node at each step (batch, time, H)."""
        slots = self.history[self.stored.index(index)]
        return slots[:, 1:] if index in self.step.carried and not self.down else slots[:, :-1]

    def state(self, part: int) -> Tensor:
        """A part of the state before each step."""
        slots = self.history[self.stored.index(self.step.carried[part])]
        return slots[:, 1:] if self.down else slots[:, :-1]


class Values:
    """Nodes of the step at all times, from what forward stored: computed by torch where they were not stored."""

    def __init__(self, step: Program, look: Look, drive: Tensor, weights: dict[str, Tensor], lengths: Tensor | None):
        self.step, self.look, self.drive, self.weights, self.lengths = step, look, drive, weights, lengths
        self.known: dict[int, Tensor] = {}
        # sums of squares need their digits; elsewhere what the products have is what the gates saw
        self.wide = torch.float32 if any(node.op == "total" for node in step.nodes) else None

    def kept(self, indices: tuple[int, ...]) -> list[Tensor]:
        """(batch, time, H), or (batch, time) where all units share a number."""
        batch, time, _ = self.drive.shape
        self._sums(indices)
        direct = {i: self.look.state(node.detail[0]) for i in indices if (node := self.step.nodes[i]).op == "state"}
        wanted = [index for index in indices if index not in direct]
        found = {index: value.view(batch, time, -1) for index, value in self._evaluated(wanted).items()}
        kinds = self.step.kinds()
        both = {**direct, **found}
        return [both[index] if kinds[index] == UNITS else both[index].squeeze(-1) for index in indices]

    def flat(self, index: int) -> Tensor:
        """(batch · time, H), in the dtype of the products."""
        if index not in self.known:
            self.known[index] = self._evaluated([index])[index]
        return self.known[index].to(self.look.history.dtype)

    def _evaluated(self, wanted: list[int]) -> dict[int, Tensor]:
        return evaluate(self.step, wanted, self._leaf, self.weights, {*self.known, *self.look.stored}, self.wide)

    def _leaf(self, index: int) -> Tensor:
        size, node = self.step.size, self.step.nodes[index]
        if index in self.known:
            return self.known[index]
        if node.op == "load":
            return self.drive[..., node.detail[1] * size : (node.detail[1] + 1) * size].reshape(-1, size)
        if node.op == "state":
            return self.look.state(node.detail[0]).reshape(-1, size)
        if node.op == "going":
            assert self.lengths is not None
            time = torch.arange(self.drive.shape[1], device=self.drive.device)
            return (time < self.lengths.to(time.device).unsqueeze(1)).reshape(-1, 1)
        return self.look.at(index).reshape(-1, size)

    def _sums(self, indices: tuple[int, ...]) -> None:
        """Products that are added to neighbouring parts of the drive: one operation makes product and sum of all."""
        nodes, size = self.step.nodes, self.step.size
        pairs = {}
        for index in indices:
            if nodes[index].op == "add":
                load, product = sorted(nodes[index].args, key=lambda arg: nodes[arg].op)
                if (nodes[load].op, nodes[product].op) == ("load", "product"):
                    pairs[product] = index, nodes[load].detail[1]
        for args, group in together(self.step).items():
            first = pairs[group[0]][1] if group[0] in pairs else 0
            neighbours = [(product in pairs) and pairs[product][1] == first + n for n, product in enumerate(group)]
            if self.wide or len(args) > 1 or not all(neighbours):
                continue
            added = self.drive.reshape(-1, self.drive.shape[-1])[:, first * size : (first + len(group)) * size]
            matrix = stacked(self.step, group, 0, self.weights)
            total = torch.addmm(added.to(matrix.dtype), self.flat(args[0]), matrix.t())
            for product, part in zip(group, total.split(size, -1), strict=True):
                self.known[pairs[product][0]] = part
