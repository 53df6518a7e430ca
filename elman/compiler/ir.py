"""A cell's step as a unit program: what each hidden unit computes, and what it must hear from the others.

A tensor of width m·H is m parts of width H. A value is a part for each row ("units"), one number for each row ("row"),
one for each unit ("vector"), or a "constant". Units hear of each other in two ways only: by a product with a matrix,
and by a total over all units. Whoever writes code for a machine reads this and nothing of the cell.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

UNITS, ROW, VECTOR, CONSTANT = "units", "row", "vector", "constant"
LEAVES = ("load", "state", "vector", "constant", "going")
HEARD = ("product", "total")  # what takes values of other units


class Matrix(NamedTuple):
    """A square block of a parameter: value @ blockᵀ, or value @ block if flipped."""

    parameter: str
    row: int
    column: int
    flipped: bool = False

    def transposed(self) -> "Matrix":
        return self._replace(flipped=not self.flipped)


class Node(NamedTuple):
    """One operation.

    load (source, part, kind): what is given anew at each step. state (part): what was carried from the last step.
    vector (parameter, part). constant (number). going: whether the row has not ended before this step.
    product (a matrix for each argument): the sum of all value @ matrixᵀ. total: the sum over all units of a row.
    All others work on single numbers.
    """

    op: str
    args: tuple[int, ...] = ()
    detail: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Program:
    """One step. `nodes` stand in an order in which they can be computed; the rest are their numbers.

    `carried`: the new value of each part of the state. `given`: what each step hands out. `summed`: what is wanted
    only as a sum over rows and steps.
    """

    size: int
    nodes: tuple[Node, ...]
    carried: tuple[int, ...]
    given: tuple[int, ...] = ()
    summed: tuple[int, ...] = ()

    def kinds(self) -> list[str]:
        found: list[str] = []
        for node in self.nodes:
            found.append(kind_of(node, [found[arg] for arg in node.args]))
        return found

    def results(self) -> tuple[int, ...]:
        return (*self.carried, *self.given, *self.summed)

    def matrices(self) -> set[str]:
        """Parameters that are used as matrices and never as vectors, whose rows must follow each other."""
        vectors = {node.detail[0] for node in self.nodes if node.op == "vector"}
        return {one.parameter for node in self.nodes if node.op == "product" for one in node.detail} - vectors


def kind_of(node: Node, args: list[str]) -> str:
    if node.op in ("state", "product", "spread"):
        return UNITS
    if node.op == "load":
        return node.detail[2]
    if node.op in ("vector", "constant"):
        return node.op
    if node.op in ("total", "going"):
        return ROW
    kinds = set(args) - {CONSTANT}
    if not kinds:
        return CONSTANT
    return kinds.pop() if len(kinds) == 1 else UNITS


@dataclass
class Builder:
    """Writes a program; what is written twice is computed once, and sums and products with 0 and 1 are not written."""

    size: int
    nodes: list[Node] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    _known: dict[Node, int] = field(default_factory=dict)

    def node(self, op: str, *args: int, detail: tuple[Any, ...] = ()) -> int:
        new = Node(op, args, detail)
        if new not in self._known:
            self.kinds.append(kind_of(new, [self.kinds[arg] for arg in args]))
            self.nodes.append(new)
            self._known[new] = len(self.nodes) - 1
        return self._known[new]

    def constant(self, value: int | float) -> int:
        return self.node("constant", detail=(float(value),))

    def number(self, index: int) -> float | None:
        node = self.nodes[index]
        return node.detail[0] if node.op == "constant" else None

    def add(self, a: int, b: int) -> int:
        if self.number(a) == 0.0:
            return b
        return a if self.number(b) == 0.0 else self.node("add", a, b)

    def mul(self, a: int, b: int) -> int:
        for one, other in ((a, b), (b, a)):
            if self.number(one) == 0.0:
                return one
            if self.number(one) == 1.0:
                return other
        return self.node("mul", a, b)

    def times(self, a: int, factor: int | float) -> int:
        return self.mul(a, self.constant(factor))

    def sub(self, a: int, b: int) -> int:
        return a if self.number(b) == 0.0 else self.node("sub", a, b)

    def total(self, a: int) -> int:
        """The sum over units; of a number that all units share, H times it."""
        return self.node("total", a) if self.kinds[a] in (UNITS, VECTOR) else self.times(a, self.size)

    def spread(self, a: int) -> int:
        """The same value, written out for each row and unit."""
        return a if self.kinds[a] == UNITS else self.node("spread", a)

    def program(self, carried: Iterable[int], given: Iterable[int] = (), summed: Iterable[int] = ()) -> Program:
        whole = Program(self.size, tuple(self.nodes), tuple(carried), tuple(given), tuple(summed))
        return rewritten(whole, {})


def rewritten(program: Program, replaced: Mapping[int, Node]) -> Program:
    """The program with some nodes replaced by leaves, and without what nobody needs any more."""
    nodes = [replaced.get(index, node) for index, node in enumerate(program.nodes)]
    needed = reached(nodes, program.results())
    builder = Builder(program.size)
    place: dict[int, int] = {}
    for index, node in enumerate(nodes):
        if index in needed:
            place[index] = builder.node(node.op, *(place[arg] for arg in node.args), detail=node.detail)

    def moved(results: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(place[index] for index in results)

    parts = moved(program.carried), moved(program.given), moved(program.summed)
    return Program(program.size, tuple(builder.nodes), *parts)


def reached(nodes: list[Node] | tuple[Node, ...], wanted: Iterable[int]) -> set[int]:
    """All that the wanted nodes are computed from, they themselves included."""
    needed: set[int] = set()
    waiting = list(wanted)
    while waiting:
        index = waiting.pop()
        if index not in needed:
            needed.add(index)
            waiting += nodes[index].args
    return needed


def ending(program: Program) -> Program:
    """The same for rows of unequal length: what is carried stays as it was once a row has ended."""
    builder = Builder(program.size)
    for node in program.nodes:
        builder.node(node.op, *node.args, detail=node.detail)
    going = builder.node("going")
    kept = {}
    for part, new in enumerate(program.carried):
        old = builder.node("state", detail=(part,))
        kept[new] = builder.node("where", going, new, old)
    carried = [kept[new] for new in program.carried]
    return builder.program(carried, [kept.get(one, one) for one in program.given], program.summed)


def described(program: Program) -> str:
    """The program as lines, for error messages, tests and names of files."""
    lines = [f"{number} = {op}{args}{detail}" for number, (op, args, detail) in enumerate(program.nodes)]
    ends = f"carried {program.carried} given {program.given} summed {program.summed}"
    return "\n".join([f"size {program.size}", *lines, ends])
