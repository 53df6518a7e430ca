"""Reverse-mode automatic differentiation of a StepIR into another StepIR, which runs backwards in time.

    forward   step t:  state, drive          ->  next state, output
    backward  step t:  d_state, d_output,        ->  d_state of step t - 1,
                       saved values of step t        d_drive, d of each matmul,   (+= d_vectors)

The adjoint IR has the adjoint of the state as its state. It returns the adjoints of the drive and of the matmuls; the
gradients of all matrices follow from these afterwards, in one GEMM over all rows and steps. Gradients of vectors are
accumulated on the way.

An element-wise operation has a rule for its vector-Jacobian product (VJP). It takes a builder, the arguments x, the
result y and the adjoint d of y, and writes an adjoint for each argument, or None where y is piecewise constant in it.
"""

import math
from collections.abc import Callable, Container
from functools import reduce
from typing import NamedTuple

from elman.compiler.interpreter import COMPARISONS, LOGICAL
from elman.compiler.ir import CONSTANT, CROSS_UNIT, LEAVES, ROW, UNITS, IRBuilder, MatrixBlock, StepIR, dependencies

Rule = Callable[[IRBuilder, tuple[int, ...], int, int], list[int | None]]


class Adjoint(NamedTuple):
    """`program` returns the adjoints of `drive` parts, then of `matmuls` (nodes of the step); it accumulates `vectors`.

    Its loads are ("output", 0) and ("saved", i), the value of node `saved[i]` of the step.
    """

    program: StepIR
    drive: tuple[int, ...]
    matmuls: tuple[int, ...]
    vectors: tuple[tuple[str, int], ...]
    saved: tuple[int, ...]


def differentiate(program: StepIR, expensive: Container[str] = ()) -> Adjoint:
    """The adjoint of a step. Results of `expensive` operations are saved, never recomputed."""
    reverse = _ReverseMode(program, expensive)
    (output,) = program.outputs
    reverse.accumulate(output, reverse.builder.node("load", detail=("output", 0, UNITS)))
    for part, node in enumerate(program.next_state):
        reverse.accumulate(node, reverse.builder.node("state", detail=(part,)))
    for index in reversed(range(len(program.nodes))):
        reverse.propagate(index)
    return reverse.result()


class _ReverseMode:
    def __init__(self, program: StepIR, expensive: Container[str]):
        self.program, self.expensive = program, expensive
        self.shapes = program.shapes()
        self.builder = IRBuilder(program.size)
        self.partial: dict[int, int] = {}  # node -> sum of the adjoints that reached it so far
        # the same for a ROW node that UNITS nodes read: still to be summed over units
        self.unreduced: dict[int, int] = {}
        self.by_matmul: dict[int, list[tuple[int, MatrixBlock]]] = {}  # node -> adjoints of matmuls that read it
        self.final: dict[int, int] = {}  # node -> its adjoint

    def accumulate(self, index: int, adjoint: int, shape: str = UNITS) -> None:
        """Adds to the adjoint of a node; `shape` is that of the node which read it."""
        if self.shapes[index] == CONSTANT:
            return
        sums = self.unreduced if self.shapes[index] == ROW and shape != ROW else self.partial
        sums[index] = self.builder.add(sums[index], adjoint) if index in sums else adjoint

    def adjoint(self, index: int) -> int | None:
        """The sum of all adjoints that reached a node; those through matmuls become one matmul."""
        terms = [self.partial[index]] if index in self.partial else []
        if index in self.by_matmul:
            args, blocks = zip(*self.by_matmul[index], strict=True)
            terms.append(self.builder.node("matmul", *args, detail=tuple(blocks)))
        if index in self.unreduced:
            terms.append(self.builder.sum_units(self.unreduced[index]))
        return reduce(self.builder.add, terms) if terms else None

    def propagate(self, index: int) -> None:
        """Sends the adjoint of a node on to its arguments."""
        node, adjoint = self.program.nodes[index], self.adjoint(index)
        if adjoint is None:
            return
        if node.op == "matmul":
            adjoint = self.builder.broadcast(adjoint)
            for arg, block in zip(node.args, node.detail, strict=True):
                self.by_matmul.setdefault(arg, []).append((adjoint, block.transposed()))
        elif node.op == "sum":
            self.accumulate(node.args[0], adjoint, ROW)
        elif node.op not in LEAVES:
            args = tuple(self.value(arg) for arg in node.args)
            parts = VJP_RULES[node.op](self.builder, args, self.value(index), adjoint)
            for arg, part in zip(node.args, parts, strict=True):
                if part is not None:
                    self.accumulate(arg, part, self.shapes[index])
        self.final[index] = adjoint

    def value(self, index: int) -> int:
        """A value of the forward step: a placeholder load, which `_choose_saved` replaces."""
        node = self.program.nodes[index]
        if node.op in ("vector", "constant", "active"):
            return self.builder.node(node.op, detail=node.detail)
        return self.builder.node("load", detail=("value", index, self.shapes[index]))

    def result(self) -> Adjoint:
        program, builder = self.program, self.builder

        def reached_leaves(op: str) -> list[int]:
            return [index for index, node in enumerate(program.nodes) if node.op == op and index in self.final]

        def final(nodes: list[int]) -> list[int]:
            return [builder.broadcast(self.final[index]) for index in nodes]

        next_state = dict.fromkeys(range(len(program.next_state)), builder.constant(0))
        next_state |= {program.nodes[index].detail[0]: self.final[index] for index in reached_leaves("state")}
        drive, matmuls, vectors = map(reached_leaves, ("load", "matmul", "vector"))
        state = [builder.broadcast(one) for one in next_state.values()]
        whole = builder.finish(state, final([*drive, *matmuls]), final(vectors))
        saved, whole = _choose_saved(program, whole, self.expensive)
        parts = tuple(program.nodes[index].detail[1] for index in drive)
        names = tuple(program.nodes[index].detail for index in vectors)
        return Adjoint(whole, parts, tuple(matmuls), names, saved)


def _choose_saved(step: StepIR, adjoint: StepIR, expensive: Container[str]) -> tuple[tuple[int, ...], StepIR]:
    """Chooses which values forward saves (a checkpointing problem), and recomputes the others from them.

    Greedy: a node is saved if that makes the saved set smaller. Inputs, states, matmuls and sums are never recomputed.
    """
    shapes = step.shapes()
    wanted = {node.detail[1] for node in adjoint.nodes if node.op == "load" and node.detail[0] == "value"}

    never = {index for index, node in enumerate(step.nodes) if node.op in ("load", "state", *CROSS_UNIT)}
    never |= {n for n, node in enumerate(step.nodes) if node.op in expensive and shapes[n] in (UNITS, ROW)}

    def saved_for(cut: set[int]) -> set[int]:
        """What must be saved if the nodes of `cut` are: the leaves of the recomputation of all wanted values."""
        leaves = never | cut
        nodes = [node._replace(args=()) if index in leaves else node for index, node in enumerate(step.nodes)]
        return dependencies(nodes, wanted) & leaves

    def cost(cut: set[int]) -> int:  # whole numbers: with 0.1 per row, rounding would decide between equal costs
        return sum(10 if shapes[index] == UNITS else 1 for index in saved_for(cut))

    cut: set[int] = set()  # nodes to save so that what lies before them need not be
    for index in sorted(dependencies(step.nodes, wanted)):
        node = step.nodes[index]
        if node.op not in (*LEAVES, *CROSS_UNIT) and shapes[index] in (UNITS, ROW) and cost(cut | {index}) < cost(cut):
            cut.add(index)
    saved = tuple(sorted(saved_for(cut)))
    builder = IRBuilder(step.size)
    recomputed: dict[int, int] = {}

    def recompute(index: int) -> int:
        """A node of the step as a node of the adjoint: a load if it is saved, else its operation."""
        if index not in recomputed:
            node = step.nodes[index]
            if index in saved:
                recomputed[index] = builder.node("load", detail=("saved", saved.index(index), shapes[index]))
            else:
                recomputed[index] = builder.node(node.op, *(recompute(arg) for arg in node.args), detail=node.detail)
        return recomputed[index]

    renumbered: list[int] = []
    for node in adjoint.nodes:
        if node.op == "load" and node.detail[0] == "value":
            renumbered.append(recompute(node.detail[1]))
        else:
            renumbered.append(builder.node(node.op, *(renumbered[arg] for arg in node.args), detail=node.detail))
    results = [[renumbered[i] for i in part] for part in (adjoint.next_state, adjoint.outputs, adjoint.accumulated)]
    return saved, builder.finish(*results)


def _split_adjoint(b: IRBuilder, condition: int, d: int) -> list[int | None]:
    zero = b.constant(0)
    return [b.node("where", condition, d, zero), b.node("where", condition, zero, d)]


def _div(b: IRBuilder, args: tuple[int, ...], result: int, d: int) -> list[int | None]:
    share = b.node("div", d, args[1])
    return [share, b.node("neg", b.mul(share, result))]


def _derivative(slope: Callable[[IRBuilder, int, int], int]) -> Rule:
    """The VJP of a function of one argument, from its derivative at (x, y)."""
    return lambda b, args, result, d: [b.mul(d, slope(b, args[0], result))]


def _one_minus(b: IRBuilder, a: int) -> int:
    return b.sub(b.constant(1), a)


VJP_RULES: dict[str, Rule] = {
    **dict.fromkeys((*COMPARISONS, *LOGICAL, "sign"), lambda b, args, result, d: [None] * len(args)),
    "add": lambda b, args, result, d: [d, d],
    "sub": lambda b, args, result, d: [d, b.node("neg", d)],
    "mul": lambda b, args, result, d: [b.mul(d, args[1]), b.mul(d, args[0])],
    "div": _div,
    "maximum": lambda b, args, result, d: _split_adjoint(b, b.node("ge", *args), d),
    "minimum": lambda b, args, result, d: _split_adjoint(b, b.node("le", *args), d),
    "where": lambda b, args, result, d: [None, *_split_adjoint(b, args[0], d)],
    "neg": lambda b, args, result, d: [b.node("neg", d)],
    "broadcast": lambda b, args, result, d: [d],
    "abs": _derivative(lambda b, x, y: b.node("sign", x)),
    "sigmoid": _derivative(lambda b, x, y: b.mul(y, _one_minus(b, y))),
    "tanh": _derivative(lambda b, x, y: _one_minus(b, b.mul(y, y))),
    "relu": lambda b, args, result, d: [b.node("where", b.node("gt", args[0], b.constant(0)), d, b.constant(0))],
    "exp": _derivative(lambda b, x, y: y),
    "expm1": _derivative(lambda b, x, y: b.add(y, b.constant(1))),
    "log": lambda b, args, result, d: [b.node("div", d, args[0])],
    "log1p": lambda b, args, result, d: [b.node("div", d, b.add(args[0], b.constant(1)))],
    "sqrt": lambda b, args, result, d: [b.node("div", b.scale(d, 0.5), result)],
    "rsqrt": _derivative(lambda b, x, y: b.scale(b.mul(y, b.mul(y, y)), -0.5)),
    "reciprocal": _derivative(lambda b, x, y: b.node("neg", b.mul(y, y))),
    "sin": _derivative(lambda b, x, y: b.node("cos", x)),
    "cos": _derivative(lambda b, x, y: b.node("neg", b.node("sin", x))),
    "erf": _derivative(lambda b, x, y: b.scale(b.node("exp", b.node("neg", b.mul(x, x))), 2 / math.sqrt(math.pi))),
}
