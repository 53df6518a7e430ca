"""A step, its derivative, the functions that were made for them, and where all their numbers lie.

All that depends on the equations alone is settled here, once, so that a call does little but allocate and walk. What
forward keeps of a step is one record; what backward writes for a step is another: adjoints of products that are not
adjoints of the drive, then those of all parts of the drive.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch

from elman.compiler.autodiff import Adjoint, derive
from elman.compiler.cell_program import names_of
from elman.compiler.cpu.emit import Place, Slot, emit
from elman.compiler.cpu.runtime import Walk, load
from elman.compiler.input_projection import Driving
from elman.compiler.interpreter import together
from elman.compiler.ir import ROW, Program

DEAR = {"sigmoid", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "erf"}
# The tensors of both walks, behind parts of the state before and after; in backward the first two are adjoints.
DRIVE, OUTPUT, KEPT, SUMS = range(4)


class Gradient(NamedTuple):
    """A product over all rows of all steps: some `blocks` below each other of a parameter's gradient, or one block
    seen from the other side."""

    parameter: int
    row: int
    column: int
    blocks: int
    flipped: bool
    adjoint: int  # where it begins in what backward writes
    value: int  # where what was multiplied begins in what forward kept

    def next(self, size: int) -> "Gradient":
        """The one block that would go on below."""
        row, adjoint = self.row + self.blocks, self.adjoint + self.blocks * size
        return self._replace(row=row, adjoint=adjoint, blocks=1)


class Sum(NamedTuple):
    """Where sums for a parameter begin, and of which of its vectors they are."""

    parameter: int
    start: int
    parts: list[int]


class Plan:
    def __init__(self, step: Program, kind: torch.dtype, driving: Driving):
        self.step, self.kind, self.driving = step, kind, driving
        self.names = names_of(step)
        self.zeros = torch.zeros(step.size, dtype=kind)
        """What stands for an adjoint that nobody gave."""

    @cached_property
    def summed(self) -> int:
        """Numbers that backward sums for each row."""
        return len(self.adjoint.vectors) * self.step.size

    @cached_property
    def adjoint(self) -> Adjoint:
        return derive(self.step, DEAR)

    @cached_property
    def kept(self) -> dict[int, Place]:
        """What backward reads of each step, for the adjoint and for the gradients of matrices: where it is kept.

        What all units of a row share comes last, so that the rest stays aligned.
        """
        heard = [arg for product in self.adjoint.products for arg in self.step.nodes[product].args]
        kinds = self.step.kinds()
        found = sorted({*self.adjoint.kept, *heard}, key=lambda index: kinds[index] == ROW)
        wide = sum(kinds[index] != ROW for index in found)
        return {index: Place(KEPT, min(n, wide), max(0, n - wide)) for n, index in enumerate(found)}

    @cached_property
    def record(self) -> int:
        """Numbers kept of a step."""
        shared = sum(self.step.kinds()[index] == ROW for index in self.kept)
        return (len(self.kept) - shared) * self.step.size + -(-shared // 16) * 16

    @cached_property
    def extras(self) -> list[int]:
        """Adjoints of products that are not adjoints of the drive."""
        given, count = self.adjoint.program.given, len(self.adjoint.drive)
        return list(dict.fromkeys(node for node in given[count:] if node not in given[:count]))

    @cached_property
    def d_drive(self) -> int:
        """Where the adjoint of the drive begins in what backward writes."""
        return len(self.extras) * self.step.size

    @cached_property
    def walks(self) -> list[Walk]:
        """Forward and backward."""
        step, adjoint = self.step, self.adjoint.program
        written = *adjoint.given[: len(self.adjoint.drive)], *self.extras
        forward = emit("forward", step, (*step.given, *self.kept), self._forward(), self.names)
        backward = emit("backward", adjoint, written, self._backward(), self.names)
        return load(self.kind, [(step, forward), (adjoint, backward)])

    def _forward(self) -> dict[Slot, Place]:
        loads = [node.detail[:2] for node in self.step.nodes if node.op == "load"]
        places: dict[Slot, Place] = {("load", load): Place(DRIVE, load[1]) for load in loads}
        for number, place in enumerate((Place(OUTPUT), *self.kept.values())):
            places["stored", number] = place
        return _behind_states(self.step, places)

    def _backward(self) -> dict[Slot, Place]:
        places: dict[Slot, Place] = {("load", ("output", 0)): Place(OUTPUT)}
        for number, index in enumerate(self.adjoint.kept):
            places["load", ("kept", number)] = self.kept[index]
        extras = len(self.extras)
        for number, part in enumerate((*(extras + part for part in self.adjoint.drive), *range(extras))):
            places["stored", number] = Place(DRIVE, part)
        order = sorted(self.adjoint.vectors)
        for number, vector in enumerate(self.adjoint.vectors):
            places["sums", number] = Place(SUMS, order.index(vector))
        return _behind_states(self.adjoint.program, places)

    @cached_property
    def sums(self) -> list[Sum]:
        """They lie in the order of names and parts."""
        order = sorted(self.adjoint.vectors)
        found = []
        for name in dict.fromkeys(name for name, _ in order):
            start = next(n for n, vector in enumerate(order) if vector[0] == name) * self.step.size
            found.append(Sum(self.names.index(name), start, [part for other, part in order if other == name]))
        return found

    @cached_property
    def gradients(self) -> list[Gradient]:
        """Of all matrices. Products whose adjoints and blocks both follow each other are one."""
        found: list[Gradient] = []
        for one in self._single_gradients():
            last = found[-1] if found else None
            if last and one == last.next(self.step.size):
                found[-1] = last._replace(blocks=last.blocks + 1)
            else:
                found.append(one)
        return found

    def _single_gradients(self) -> Iterator[Gradient]:
        size, adjoint = self.step.size, self.adjoint
        given, count = adjoint.program.given, len(adjoint.drive)
        place = {node: n * size for n, node in enumerate(self.extras)}
        place |= {node: self.d_drive + part * size for node, part in zip(given, adjoint.drive, strict=False)}
        products = {product: place[node] for product, node in zip(adjoint.products, given[count:], strict=True)}
        for args, group in together(self.step).items():
            for number, arg in enumerate(args):
                for index in (index for index in group if index in products):
                    name, row, column, flipped = self.step.nodes[index].detail[number]
                    where = self.names.index(name), row, column, 1, flipped
                    yield Gradient(*where, products[index], self.kept[arg].parts * size)


def _behind_states(program: Program, places: dict[Slot, Place]) -> dict[Slot, Place]:
    slots: list[Slot] = [(what, part) for what in ("initial", "final") for part in range(len(program.carried))]
    moved = {slot: place._replace(tensor=len(slots) + place.tensor) for slot, place in places.items()}
    return moved | {slot: Place(number) for number, slot in enumerate(slots)}
