"""The stages of one time step, and where thread blocks must exchange values.

A product (the IR's `matmul`) needs its input from all programs of a group; a total (the `sum` over units) a partial sum
of each. Both are published at the end of a stage and read in the next one, with an exchange between:

    stage 0: critical ops -> publish -> overlapped ops (hide the latency) -> exchange -> stage 1: ...

Products of the old state need no exchange inside the step: the new state is published as soon as it is known, and the
exchange at the step's end covers it. So an LSTM, or a GRU that resets after its product, has one exchange per step, a
GRU that resets before its product two, a layer-norm LSTM three.
"""

from collections.abc import Iterable
from typing import NamedTuple

from elman.compiler.ir import StepIR, dependencies


def matmul_inputs(program: StepIR) -> tuple[int, ...]:
    """Nodes that products read, without repetition: values of this step, or states."""
    return tuple(dict.fromkeys(arg for node in program.nodes if node.op == "matmul" for arg in node.args))


class Stage(NamedTuple):
    critical: tuple[int, ...]  # nodes computed first, because other programs wait for them
    published: tuple[int, ...]  # nodes stored for the other programs
    reductions: tuple[int, ...]  # totals whose partial sum is published
    overlapped: tuple[int, ...]  # nodes computed while the exchange is under way
    saved: tuple[int, ...]  # nodes stored for backward or as output; no program of this kernel waits for them
    exchange: bool  # whether an exchange ends the stage


class Schedule(NamedTuple):
    stages: tuple[Stage, ...]
    stored: tuple[int, ...]  # all stored nodes, in the order of their slots in `history`

    @property
    def exchanges(self) -> int:
        """Per time step."""
        return sum(stage.exchange for stage in self.stages)


def schedule(program: StepIR, saved: Iterable[int] = (), single: bool = False) -> Schedule:
    """`saved`: nodes to store in any case. `single`: one program has all units of its rows, so nothing is exchanged."""
    nodes = program.nodes
    level: list[int] = []  # of each node: how many exchanges of this step precede it
    in_step: set[int] = set()  # published for a product of this step
    next_step: set[int] = set()  # new states, published for a product of the next step
    for node in nodes:
        if node.op == "matmul":
            in_step |= {arg for arg in node.args if nodes[arg].op != "state"}
            next_step |= {program.next_state[nodes[arg].detail[0]] for arg in node.args if nodes[arg].op == "state"}
        waits = (node.op == "sum" or (node.op == "matmul" and nodes[arg].op != "state") for arg in node.args)
        before = (level[arg] + (wait and not single) for arg, wait in zip(node.args, waits, strict=True))
        level.append(max(before, default=0))
    stored = list(dict.fromkeys([*saved, *(() if single else sorted(in_step | next_step))]))
    live = dependencies(nodes, program.results())
    last = max(level[index] for index in live)
    stages: list[Stage] = []
    known: set[int] = set()
    for number in range(last + 1):
        here = [index for index in sorted(live) if level[index] == number]
        published = [] if single else [index for index in here if index in in_step or index in next_step]
        totals = (index for index in sorted(live) if nodes[index].op == "sum" and not single)
        reductions = [index for index in totals if level[nodes[index].args[0]] == number]
        urgent = dependencies(nodes, [*published, *(nodes[index].args[0] for index in reductions)])
        critical = [index for index in here if index in urgent]
        known |= set(published)
        only_saved = [index for index in here if index in stored and index not in known]
        overlapped = [index for index in here if index not in urgent]
        exchange = number < last or bool(published)
        first = tuple(critical), tuple(published), tuple(reductions)
        stages.append(Stage(*first, tuple(overlapped), tuple(only_saved), exchange))
    return Schedule(tuple(stages), tuple(stored))
