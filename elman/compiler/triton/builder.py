"""KernelBuilder: the source of one kernel while it is written, and the facts that all its writers share.

`Emitter` drives; `Matmul` writes products, `Sync` exchanges between programs. All three receive one builder, write
lines into it, and ask it for names and addresses. `program` is the IR; `num_programs` counts the Triton programs, that
is thread blocks, of a group, and `rank` is the number of one.

Names in a generated kernel (shapes in brackets; R rows of a group, U units of a program, padded to a power of two):
    v<n>     value of IR node n [R, U], [R, 1] for one number per row, [1, U] for one per unit
    s<n>     part n of the state, float32        x<n>, y<n>  input n of this step, and of the next one, loaded early
    p<n>, load<n>, initial<n>  pointers to parameters, inputs, parts of the initial state; _r, _t, _n, _d strides
    h<a>_<tile>  K tile of product input a       a<n>_<u>  accumulator of product n and those beside it, from unit u on
    w<n>_<a>_<tile>_<u>  their weights           sum<n>  output n summed over steps
    history  (nodes, rows, time, units) in global memory: every stored node at each step; nothing is ever overwritten
    exchange, half, inbox  addresses in shared memory: exchange buffer (cluster.py), this step's half, st.async part
"""

from dataclasses import dataclass
from typing import NamedTuple

from elman.compiler.interpreter import group_matmuls
from elman.compiler.ir import CONSTANT, UNITS, StepIR
from elman.compiler.triton.partition import Partition, SyncMode, padded
from elman.compiler.triton.schedule import Schedule, matmul_inputs, schedule
from elman.compiler.triton.triton_ops import interpreted, literal, op_templates


class StepOrder(NamedTuple):
    """The order of steps, as source text: forward, backward, or both in a bidirectional launch.

    States have one slot more than there are steps: slot t is before step t, slot t + 1 after it (in a forward walk).
    """

    first: str  # the step taken first
    current: str  # the step taken when `step` of them are done
    next: str  # the step after t, clamped to the sequence
    after_next: str  # the step after that, clamped
    slot_after: str  # the slot of the state after step t
    slot_before: str  # the slot of the state before it


UP = StepOrder("0", "step", "tl.minimum(t + 1, T - 1)", "tl.minimum(t + 2, T - 1)", "(t + 1)", "t")
DOWN = StepOrder("(T - 1)", "T - 1 - step", "tl.maximum(t - 1, 0)", "tl.maximum(t - 2, 0)", "t", "(t + 1)")
BOTH = StepOrder(  # `up` is 1 in programs that walk forward in time, 0 in those that walk backward
    "((1 - up) * (T - 1))",
    "up * step + (1 - up) * (T - 1 - step)",
    "tl.minimum(tl.maximum(t + 2 * up - 1, 0), T - 1)",
    "tl.minimum(tl.maximum(t + 4 * up - 2, 0), T - 1)",
    "(t + up)",
    "(t + 1 - up)",
)


@dataclass
class KernelBuilder:
    program: StepIR
    saved: tuple[int, ...]  # nodes to store besides those that are exchanged
    part: Partition
    itemsize: int  # bytes of a value in products and `history`
    precision: str  # of float32 products
    reverse: bool  # from the last step to the first
    bidirectional: bool  # a second direction in the same launch, with inputs and weights of its own, in opposite order

    def __post_init__(self) -> None:
        program, part, itemsize = self.program, self.part, self.itemsize
        self.order = BOTH if self.bidirectional else DOWN if self.reverse else UP
        self.tf32 = itemsize == 4 and self.precision == "tf32"
        self.templates = op_templates(itemsize, self.tf32)
        self.shapes = program.shapes()
        self.size, self.width = program.size, padded(program.size)
        self.num_programs = part.programs(program.size)
        self.schedule: Schedule = schedule(program, self.saved, single=self.num_programs == 1)
        nodes = program.nodes
        self.loads = tuple(node.detail for node in nodes if node.op == "load")
        self.parameters = program.parameters()
        self.matrices = program.matrices()
        self.totals = [index for index, node in enumerate(nodes) if node.op == "sum"]
        self.products = group_matmuls(program)
        several = self.num_programs > 1
        self.fragment_loads = part.fragment_loads and several
        self.uses_counter = several and not part.fragment_loads
        self.clustered = part.clustered and several and not interpreted()  # the interpreter has no shared memory
        self.exchange = part.exchange_buffer(program, itemsize)
        self.polls_sums = self.clustered and self.exchange.polled
        self.st_async = self.exchange.values if self.clustered else None
        self.exchanged = matmul_inputs(program)
        self.prefetches_history = part.sync == SyncMode.SENTINEL and several and not interpreted()
        wide = [number for number, load in enumerate(self.loads) if load[2] == UNITS]
        self.prefetched_inputs = wide if part.waits_on_chip and self.clustered else []
        self.lines: list[str] = []
        self.functions: dict[str, str] = {}  # device functions of this kernel: source by name
        self.polled: dict[int, None] = {}  # stored nodes that programs read from each other, in order
        self.received: set[int] = set()  # product inputs that st_async has delivered so far in the step

    def write(self, line: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + line)

    def value(self, index: int) -> str:
        return literal(self.program, index) if self.shapes[index] == CONSTANT else f"v{index}"

    def broadcast(self, index: int) -> str:
        """A node as [R, U]."""
        return self.value(index) if self.shapes[index] == UNITS else f"({self.value(index)} + zeros)"

    def step_input(self, number: int) -> str:
        return f"unpack(x{number}, history.dtype.element_ty)"

    def tiles_are_full(self) -> bool:
        """Whether every program has as many units as its tensors are wide."""
        return self.size % self.part.units == 0 and self.part.units == self.part.padded_units

    def is_state(self, arg: int) -> bool:
        return self.program.nodes[arg].op == "state"

    def published_node(self, arg: int) -> int:
        """The node that is stored or sent for a product input: itself, or the new value of a state."""
        return self.program.next_state[self.program.nodes[arg].detail[0]] if self.is_state(arg) else arg

    def history_address(self, index: int, before: bool = False) -> str:
        """Of a stored node at step t. States have T + 1 time slots: `before` gives the slot of the state before t."""
        state_slot = self.order.slot_before if before else self.order.slot_after
        slot = state_slot if index in self.program.next_state else "t"
        return f"history + {slot} * history_t + {self.schedule.stored.index(index)} * history_n"

    def sums_over_units(self, values: list[str]) -> list[str]:
        """Row sums [R, 1] of tensors [R, U]; several in one reduction, whose shuffles overlap."""
        count = len(values)
        if count < 2 or interpreted():
            return [f"tl.sum({value}, 1)[:, None]" for value in values]
        a, b = ([f"{side}{number}" for number in range(count)] for side in "ab")
        pairs = ", ".join(f"{one} + {other}" for one, other in zip(a, b, strict=True))
        head = f"\n@triton.jit\ndef add{count}({', '.join([*a, *b])}):\n"
        self.functions[f"add{count}"] = f"{head}    return {pairs}\n"
        found = [f"total{number}" for number in range(count)]
        self.write(f"{', '.join(found)} = tl.reduce(({', '.join(values)}), 1, add{count})", 2)
        return [f"{one}[:, None]" for one in found]
