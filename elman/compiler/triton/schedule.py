"""When the programs of a group must meet: values that other units need are sent, and taken after a meeting.

A step is a list of stages with a meeting between each two. What is sent comes first in a stage; all else is computed
while the others are waited for. Products of the old state need no meeting inside the step, since the new state is sent
when it is known and met for at the step's end: one round for an LSTM or a GRU that resets after its product, two for
one that resets before.
"""

from collections.abc import Iterable
from typing import NamedTuple

from elman.compiler.ir import StepIR, dependencies


def heard(program: StepIR) -> tuple[int, ...]:
    """What products take, each once: values of the step, or states."""
    return tuple(dict.fromkeys(arg for node in program.nodes if node.op == "matmul" for arg in node.args))


class Stage(NamedTuple):
    first: tuple[int, ...]  # computed first, for the others' sake
    sent: tuple[int, ...]  # stored where all see them
    begun: tuple[int, ...]  # totals of which this program's share is stored
    rest: tuple[int, ...]  # computed while the others are waited for
    kept: tuple[int, ...]  # stored too, but nobody waits for them
    meets: bool  # whether a meeting ends the stage


class Schedule(NamedTuple):
    stages: tuple[Stage, ...]
    stored: tuple[int, ...]  # all nodes that are stored; their order is that of the places

    @property
    def rounds(self) -> int:
        return sum(stage.meets for stage in self.stages)


def schedule(program: StepIR, kept: Iterable[int] = (), alone: bool = False) -> Schedule:
    """`kept` are nodes to be stored whether others need them or not. Alone, a program owns all units of its rows."""
    nodes = program.nodes
    level: list[int] = []
    inside: set[int] = set()  # heard within the step
    from_state: set[int] = set()  # heard in the next step
    for node in nodes:
        if node.op == "matmul":
            inside |= {arg for arg in node.args if nodes[arg].op != "state"}
            from_state |= {program.next_state[nodes[arg].detail[0]] for arg in node.args if nodes[arg].op == "state"}
        level.append(max((level[arg] + _later(node.op, nodes[arg].op, alone) for arg in node.args), default=0))
    wanted = list(dict.fromkeys([*kept, *(() if alone else sorted(inside | from_state))]))
    live = dependencies(nodes, program.results())
    last = max(level[index] for index in live)
    stages: list[Stage] = []
    known: set[int] = set()
    for number in range(last + 1):
        here = [index for index in sorted(live) if level[index] == number]
        sent = [] if alone else [index for index in here if index in inside or index in from_state]
        begun = [] if alone else [index for index in sorted(live) if _begins(program, index, level, number)]
        urgent = dependencies(nodes, [*sent, *(nodes[index].args[0] for index in begun)])
        first = [index for index in here if index in urgent]
        known |= set(sent)
        written = [index for index in here if index in wanted and index not in known]
        rest = [index for index in here if index not in urgent]
        meets = number < last or bool(sent)
        stages.append(Stage(tuple(first), tuple(sent), tuple(begun), tuple(rest), tuple(written), meets))
    return Schedule(tuple(stages), tuple(wanted))


def _later(op: str, of: str, alone: bool) -> int:
    """Whether a meeting stands between a value and who takes it."""
    if alone:
        return 0
    return int(op == "sum" or (op == "matmul" and of != "state"))


def _begins(program: StepIR, index: int, level: list[int], number: int) -> bool:
    node = program.nodes[index]
    return node.op == "sum" and level[node.args[0]] == number
