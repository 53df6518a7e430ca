"""The intermediate representation (IR) of one step of a recurrent cell.

    B  rows of the batch        H  hidden units (`size`)        W[i, j]  the H x H block (i, j) of a parameter

The IR is a list of nodes in static single assignment (SSA) form: each node is one value, named by its index, and reads
nodes before it. A tensor of width m·H is m values of width H. A value has one of four broadcast shapes:

    UNITS (B, H)     ROW (B, 1)     VECTOR (H,)     CONSTANT ()

Values of different units meet in two operations only: `matmul`, and `sum` over the units of a row. All others work
element by element. Example, the Elman network h' = tanh(x + W h + b), where x is the input projection:

    %0 = load drive[0]      UNITS                    %4 = vector b[0]        VECTOR
    %1 = state 0            UNITS                    %5 = add %3 %4          UNITS
    %2 = matmul %1 W[0, 0]  UNITS                    %6 = tanh %5            UNITS
    %3 = add %0 %2          UNITS                    next_state %6, outputs %6

A back end (`cpu`, `triton`) reads this and nothing else of the cell.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

UNITS, ROW, VECTOR, CONSTANT = "units", "row", "vector", "constant"
LEAVES = ("load", "state", "vector", "constant", "active")
CROSS_UNIT = ("matmul", "sum")  # operations that read values of other units


class MatrixBlock(NamedTuple):
    """An H x H block of a parameter, as an operand: value @ blockᵀ, or value @ block if `flipped`."""

    parameter: str
    row: int
    column: int
    flipped: bool = False

    def transposed(self) -> "MatrixBlock":
        return self._replace(flipped=not self.flipped)


class Node(NamedTuple):
    """One SSA value.

    Leaves, with their `detail`: load (source, part, shape), an input of this step; state (part), the state before the
    step; vector (parameter, part); constant (number); active, whether the row has not ended before this step.
    matmul (a MatrixBlock for each argument): the sum of all value @ blockᵀ. sum: over the units of a row. broadcast: to
    UNITS. All others are element-wise (`pointwise`).
    """

    op: str
    args: tuple[int, ...] = ()
    detail: tuple[Any, ...] = ()


@dataclass(frozen=True)
class StepIR:
    """One step. `nodes` are in topological order; results are indices of nodes.

    `next_state`: the new value of each part of the state. `outputs`: what each step returns. `accumulated`: values that
    are needed only as a sum over rows and steps (gradients of vectors).
    """

    size: int
    nodes: tuple[Node, ...]
    next_state: tuple[int, ...]
    outputs: tuple[int, ...] = ()
    accumulated: tuple[int, ...] = ()

    def shapes(self) -> list[str]:
        """The broadcast shape of each node."""
        shapes: list[str] = []
        for node in self.nodes:
            shapes.append(infer_shape(node, [shapes[arg] for arg in node.args]))
        return shapes

    def results(self) -> tuple[int, ...]:
        return (*self.next_state, *self.outputs, *self.accumulated)

    def parameters(self) -> tuple[str, ...]:
        """Parameters and buffers that the step reads."""
        vectors = [node.detail[0] for node in self.nodes if node.op == "vector"]
        matrices = [block.parameter for node in self.nodes if node.op == "matmul" for block in node.detail]
        return tuple(dict.fromkeys([*vectors, *matrices]))

    def matrices(self) -> set[str]:
        """Parameters used as matrices and never as vectors; only these may be padded row by row."""
        return set(self.parameters()) - {node.detail[0] for node in self.nodes if node.op == "vector"}


def infer_shape(node: Node, args: list[str]) -> str:
    """The broadcast shape of a node, from those of its arguments."""
    if node.op in ("state", "matmul", "broadcast"):
        return UNITS
    if node.op == "load":
        return node.detail[2]
    if node.op in ("vector", "constant"):
        return node.op
    if node.op in ("sum", "active"):
        return ROW
    shapes = set(args) - {CONSTANT}
    if not shapes:
        return CONSTANT
    return shapes.pop() if len(shapes) == 1 else UNITS


@dataclass
class IRBuilder:
    """Builds a StepIR with common-subexpression elimination; folds x + 0, x · 0 and x · 1."""

    size: int
    nodes: list[Node] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    _numbering: dict[Node, int] = field(default_factory=dict)  # value numbering: equal nodes share an index

    def node(self, op: str, *args: int, detail: tuple[Any, ...] = ()) -> int:
        new = Node(op, args, detail)
        if new not in self._numbering:
            self.shapes.append(infer_shape(new, [self.shapes[arg] for arg in args]))
            self.nodes.append(new)
            self._numbering[new] = len(self.nodes) - 1
        return self._numbering[new]

    def constant(self, value: int | float) -> int:
        return self.node("constant", detail=(float(value),))

    def constant_value(self, index: int) -> float | None:
        node = self.nodes[index]
        return node.detail[0] if node.op == "constant" else None

    def add(self, a: int, b: int) -> int:
        if self.constant_value(a) == 0.0:
            return b
        return a if self.constant_value(b) == 0.0 else self.node("add", a, b)

    def mul(self, a: int, b: int) -> int:
        for one, other in ((a, b), (b, a)):
            if self.constant_value(one) == 0.0:
                return one
            if self.constant_value(one) == 1.0:
                return other
        return self.node("mul", a, b)

    def scale(self, a: int, factor: int | float) -> int:
        return self.mul(a, self.constant(factor))

    def sub(self, a: int, b: int) -> int:
        return a if self.constant_value(b) == 0.0 else self.node("sub", a, b)

    def sum_units(self, a: int) -> int:
        """The sum over units; for a value that all units share, H times it."""
        return self.node("sum", a) if self.shapes[a] in (UNITS, VECTOR) else self.scale(a, self.size)

    def broadcast(self, a: int) -> int:
        return a if self.shapes[a] == UNITS else self.node("broadcast", a)

    def finish(self, next_state: Iterable[int], outputs: Iterable[int] = (), accumulated: Iterable[int] = ()) -> StepIR:
        """The IR with these results, after dead-code elimination."""
        results = (tuple(next_state), tuple(outputs), tuple(accumulated))
        builder, renumbered = IRBuilder(self.size), dict[int, int]()
        for index in sorted(dependencies(self.nodes, [one for part in results for one in part])):
            node = self.nodes[index]
            renumbered[index] = builder.node(node.op, *(renumbered[arg] for arg in node.args), detail=node.detail)
        renamed = (tuple(renumbered[index] for index in part) for part in results)
        return StepIR(self.size, tuple(builder.nodes), *renamed)


def dependencies(nodes: Sequence[Node], roots: Iterable[int]) -> set[int]:
    """All nodes from which the roots are computed, the roots included (a backward slice)."""
    found: set[int] = set()
    worklist = list(roots)
    while worklist:
        index = worklist.pop()
        if index not in found:
            found.add(index)
            worklist += nodes[index].args
    return found


def mask_finished_rows(program: StepIR) -> StepIR:
    """For rows of unequal length: the state of a row is frozen once the row has ended."""
    builder = IRBuilder(program.size)
    for node in program.nodes:
        builder.node(node.op, *node.args, detail=node.detail)
    active = builder.node("active")
    masked = {}
    for part, new in enumerate(program.next_state):
        old = builder.node("state", detail=(part,))
        masked[new] = builder.node("where", active, new, old)
    next_state = [masked[new] for new in program.next_state]
    return builder.finish(next_state, [masked.get(one, one) for one in program.outputs], program.accumulated)


def dump(program: StepIR) -> str:
    """The IR as text, for error messages, tests and docs: `%8 = add %1 %5`."""
    lines = []
    for index, node in enumerate(program.nodes):
        words = [node.op, *(f"%{arg}" for arg in node.args)]
        if node.op == "matmul":
            words += [f"{one.parameter}[{one.row}, {one.column}]{'ᵀ' * one.flipped}" for one in node.detail]
        elif node.op in ("load", "vector"):
            name, part, *shape = node.detail
            words += [f"{name}[{part}]", *shape]
        else:
            words += map(str, node.detail)
        lines.append(f"%{index} = {' '.join(words)}")
    results = (("next_state", program.next_state), ("outputs", program.outputs), ("accumulated", program.accumulated))
    lines += [" ".join([name, *(f"%{index}" for index in indices)]) for name, indices in results if indices]
    return "\n".join([f"size {program.size}", *lines])
