"""The derivative of a unit program, itself a unit program that walks through time the other way.

Its state is the adjoint of the state; what it loads is the adjoint of the output and those values of the step that are
kept; what it gives are the adjoints of drive and products, from which all gradients of matrices follow afterwards, in
one matrix product over all of time. Adjoints of vectors are summed on the way.
"""

from collections.abc import Container
from functools import reduce
from typing import NamedTuple

from elman.compiler.ir import (
    CONSTANT,
    HEARD,
    LEAVES,
    ROW,
    UNITS,
    Builder,
    Matrix,
    Program,
    reached,
)
from elman.compiler.pointwise import adjoints


class Adjoint(NamedTuple):
    """`program` gives the adjoints of `drive` parts, then of `products` (nodes of the step); it sums `vectors`.

    Its loads are ("output", 0) and ("kept", i), the value of node `kept[i]` of the step.
    """

    program: Program
    drive: tuple[int, ...]
    products: tuple[int, ...]
    vectors: tuple[tuple[str, int], ...]
    kept: tuple[int, ...]


def derive(program: Program, dear: Container[str] = ()) -> Adjoint:
    """Reverse mode, node by node from the last to the first. Results of `dear` operations are never computed again."""
    reverse = _Reverse(program, dear)
    (output,) = program.given
    reverse.receive(output, reverse.builder.node("load", detail=("output", 0, UNITS)))
    for part, node in enumerate(program.carried):
        reverse.receive(node, reverse.builder.node("state", detail=(part,)))
    for index in reversed(range(len(program.nodes))):
        reverse.pass_on(index)
    return reverse.result()


class _Reverse:
    def __init__(self, program: Program, dear: Container[str]):
        self.program, self.dear = program, dear
        self.kinds = program.kinds()
        self.builder = Builder(program.size)
        self.received: dict[int, int] = {}
        self.from_units: dict[int, int] = {}  # what a number shared by all units receives from each of them
        self.heard: dict[int, list[tuple[int, Matrix]]] = {}  # adjoints of products that took this node's value
        self.done: dict[int, int] = {}

    def receive(self, index: int, adjoint: int, kind: str = UNITS) -> None:
        """Adjoints of one node add up; `kind` is that of the value which they come from."""
        if self.kinds[index] == CONSTANT:
            return
        before = self.from_units if self.kinds[index] == ROW and kind != ROW else self.received
        before[index] = self.builder.add(before[index], adjoint) if index in before else adjoint

    def adjoint(self, index: int) -> int | None:
        """All that was received, by way of products and from all units too."""
        found = [self.received[index]] if index in self.received else []
        if index in self.heard:
            args, matrices = zip(*self.heard[index], strict=True)
            found.append(self.builder.node("product", *args, detail=tuple(matrices)))
        if index in self.from_units:
            found.append(self.builder.total(self.from_units[index]))
        return reduce(self.builder.add, found) if found else None

    def pass_on(self, index: int) -> None:
        node = self.program.nodes[index]
        found = self.adjoint(index)
        if found is None:
            return
        builder = self.builder
        if node.op == "product":
            found = builder.spread(found)
            for arg, matrix in zip(node.args, node.detail, strict=True):
                self.heard.setdefault(arg, []).append((found, matrix.transposed()))
        elif node.op == "total":
            self.receive(node.args[0], found, ROW)
        elif node.op not in LEAVES:
            args = tuple(self.value(arg) for arg in node.args)
            for arg, part in zip(node.args, adjoints(builder, node.op, args, self.value(index), found), strict=True):
                if part is not None:
                    self.receive(arg, part, self.kinds[index])
        self.done[index] = found

    def value(self, index: int) -> int:
        """A value of the step, to be replaced by a load or by its own recipe."""
        node = self.program.nodes[index]
        if node.op in ("vector", "constant", "going"):
            return self.builder.node(node.op, detail=node.detail)
        return self.builder.node("load", detail=("value", index, self.kinds[index]))

    def result(self) -> Adjoint:
        program, builder = self.program, self.builder
        zero = builder.constant(0)

        def leaves(op: str) -> list[int]:
            return [index for index, node in enumerate(program.nodes) if node.op == op]

        def given(index: int) -> int:
            return builder.spread(self.done.get(index, zero))

        carried = [zero] * len(program.carried)
        for index in leaves("state"):
            carried[program.nodes[index].detail[0]] = self.done.get(index, zero)
        drive = [index for index in leaves("load") if index in self.done]
        products = [index for index in leaves("product") if index in self.done]
        vectors = [index for index in leaves("vector") if index in self.done]
        whole = builder.program(
            [builder.spread(one) for one in carried],
            [given(index) for index in (*drive, *products)],
            [given(index) for index in vectors],
        )
        kept, whole = _with_kept(program, whole, self.dear)
        parts = tuple(program.nodes[index].detail[1] for index in drive)
        names = tuple(program.nodes[index].detail for index in vectors)
        return Adjoint(whole, parts, tuple(products), names, kept)


def _with_kept(step: Program, adjoint: Program, dear: Container[str]) -> tuple[tuple[int, ...], Program]:
    """Values of the step become loads of as few nodes as will do, and what follows from these is computed again."""
    kinds = step.kinds()
    asked = {node.detail[1] for node in adjoint.nodes if node.op == "load" and node.detail[0] == "value"}

    def loads(cut: set[int]) -> set[int]:
        found, waiting, seen = set(), list(asked), set()
        while waiting:
            index = waiting.pop()
            if index in seen:
                continue
            seen.add(index)
            node = step.nodes[index]
            kept = node.op in dear and kinds[index] in (UNITS, ROW)
            if kept or index in cut or node.op in ("load", "state", *HEARD):
                found.add(index)
            elif node.op not in LEAVES:
                waiting += node.args
        return found

    def cost(cut: set[int]) -> float:
        return sum(1 if kinds[index] == UNITS else 0.1 for index in loads(cut))

    cut: set[int] = set()
    for index in sorted(reached(step.nodes, asked)):
        node = step.nodes[index]
        if node.op not in (*LEAVES, *HEARD) and kinds[index] in (UNITS, ROW) and cost(cut | {index}) < cost(cut):
            cut.add(index)
    kept = tuple(sorted(loads(cut)))
    builder = Builder(step.size)
    place: dict[int, int] = {}

    def recipe(index: int) -> int:
        """A node of the step, written into the adjoint."""
        if index not in place:
            node = step.nodes[index]
            if index in kept:
                place[index] = builder.node("load", detail=("kept", kept.index(index), kinds[index]))
            else:
                place[index] = builder.node(node.op, *(recipe(arg) for arg in node.args), detail=node.detail)
        return place[index]

    moved: list[int] = []
    for node in adjoint.nodes:
        if node.op == "load" and node.detail[0] == "value":
            moved.append(recipe(node.detail[1]))
        else:
            moved.append(builder.node(node.op, *(moved[arg] for arg in node.args), detail=node.detail))
    results = [[moved[index] for index in part] for part in (adjoint.carried, adjoint.given, adjoint.summed)]
    return kept, builder.program(*results)
