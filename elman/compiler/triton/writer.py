"""What all who write a kernel know: the program, how it is divided, the lines so far, and where things lie."""

from elman.compiler.direction import BOTH, DOWN, UP
from elman.compiler.ir import CONSTANT, UNITS, StepIR
from elman.compiler.triton.partition import Partition, padded
from elman.compiler.triton.schedule import Schedule, heard, schedule
from elman.compiler.triton.triton_ops import interpreted, literal, words


class KernelWriter:
    """`kept`: nodes to store besides those that are sent. `itemsize`: bytes of a number in products and histories.
    `precision`: of products in float32. `down`: from the last step to the first. `both`: a second way in the same
    launch, with weights, state and loads of its own, that takes the steps in the opposite order."""

    def __init__(
        self,
        program: StepIR,
        kept: tuple[int, ...],
        part: Partition,
        itemsize: int,
        precision: str,
        down: bool,
        both: bool,
    ):
        self.program, self.part, self.precision, self.down, self.both = program, part, precision, down, both
        self.order = BOTH if both else DOWN if down else UP
        self.itemsize = itemsize
        self.rounding = itemsize == 4 and precision == "tf32"
        self.words = words(itemsize, self.rounding)
        self.kinds = program.shapes()
        self.size, self.width = program.size, padded(program.size)
        self.programs = part.programs(program.size)
        self.plan: Schedule = schedule(program, kept, alone=self.programs == 1)
        nodes = program.nodes
        self.loads = tuple(node.detail for node in nodes if node.op == "load")
        named = [node.detail[0] for node in nodes if node.op == "vector"]
        named += [matrix.parameter for node in nodes if node.op == "matmul" for matrix in node.detail]
        self.parameters = tuple(dict.fromkeys(named))
        self.matrices = program.matrices()
        self.totals = [index for index, node in enumerate(nodes) if node.op == "sum"]
        self.groups: dict[tuple[int, ...], list[int]] = {}
        for index, node in enumerate(nodes):
            if node.op == "matmul":
                self.groups.setdefault(node.args, []).append(index)
        self.lines: list[str] = []
        self.meetings = 0
        self.laned = part.laned and self.programs > 1
        self.counting = self.programs > 1 and not part.laned
        self.near = part.clustered and self.programs > 1 and not interpreted()  # which knows no shared memory
        self.mailbox = part.mailbox(program, itemsize)
        self.mailed = self.near and self.mailbox.looking
        self.post = self.mailbox.post if self.near else None
        self.wanted = heard(program)
        self.bringing = part.poll == "data" and self.programs > 1 and not interpreted()
        wide = [number for number, load in enumerate(self.loads) if load[2] == UNITS]
        self.brought = wide if part.quiet and self.near else []  # what is given and has to be brought near
        self.functions: dict[str, str] = {}
        self.awaited: dict[int, None] = {}
        self.received: set[int] = set()  # of what products take and the post brings

    def write(self, line: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + line)

    def value(self, index: int) -> str:
        return literal(self.program, index) if self.kinds[index] == CONSTANT else f"v{index}"

    def full(self, index: int) -> str:
        return self.value(index) if self.kinds[index] == UNITS else f"({self.value(index)} + blank)"

    def given(self, number: int) -> str:
        """What was fetched for this step."""
        return f"parted(x{number}, history.dtype.element_ty)"

    def whole(self) -> bool:
        """Whether every program has as many units as tensors have room for."""
        return self.size % self.part.units == 0 and self.part.units == self.part.tile

    def source(self, arg: int) -> int:
        """What is sent for a product's sake: itself, or what becomes of a state."""
        return self.program.next_state[self.program.nodes[arg].detail[0]] if self.of_state(arg) else arg

    def of_state(self, arg: int) -> bool:
        return self.program.nodes[arg].op == "state"

    def place(self, index: int, before: bool = False) -> str:
        """Where a stored node lies: a state beside its step, on the side that is walked to; else at it."""
        beside = self.order.slot_before if before else self.order.slot_after
        moved = beside if index in self.program.next_state else "t"
        return f"history + {moved} * history_t + {self.plan.stored.index(index)} * history_p"
