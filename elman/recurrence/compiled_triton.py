"""The generated form: kernels written for this very cell, forward and backward, that run a whole sequence on the GPU.

A plan knows a cell's step, its derivative and their kernels; `passes` runs them. Two cells of one kind, one from each
end of the sequence, can share a launch.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from elman.compiler.aligned_matmul import linear, misaligned
from elman.compiler.autodiff import Adjoint, differentiate
from elman.compiler.cell_program import active_weight, first_parameter, parameter_names, step_ir
from elman.compiler.input_projection import InputProjection
from elman.compiler.ir import StepIR
from elman.compiler.triton import partition
from elman.compiler.triton.autograd import Way, walked
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import Partition
from elman.compiler.triton.saved_for_backward import Recall
from elman.compiler.triton.triton_ops import interpreted
from elman.ops import taps
from elman.shapes import Lengths, Sequence, State

RESERVED = 1024  # bytes of shared memory that a program cannot have
TRIED = 9  # compute capability: Hopper
FEW = 64  # units
SHORT = 32  # steps; below, the host takes longer for ours than the vendor for all
KINDS = (torch.float32, torch.float16, torch.bfloat16)
_asked: dict[str, Partition] = {}


class Plan:
    """A step, its derivative, and the kernels that were made for them."""

    def __init__(self, step: StepIR):
        self.step = step
        self.names = parameter_names(step)
        self.multiplied = {one.parameter for node in step.nodes if node.op == "matmul" for one in node.detail}
        self.kernels: dict[Any, Kernel] = {}
        self.settled: dict[Any, Kernel] = {}  # the same, by what a call knows
        self.divisions: dict[Any, Partition | None] = {}  # looking for one takes as long as a short sequence
        self.driving: InputProjection | None = None

    @cached_property
    def adjoint(self) -> Adjoint:
        return differentiate(self.step)

    @cached_property
    def recall(self) -> Recall:
        return Recall(self.step, self.adjoint)

    def stored(self, saving: bool) -> tuple[int, ...]:
        """What forward stores, by whether backward will ask for it."""
        return tuple(dict.fromkeys((*self.step.outputs, *(self.recall.remembered if saving else ()))))

    def division(
        self, direction: str, batch: int, kind: torch.dtype, device: torch.device, ways: int = 1
    ) -> Partition | None:
        if direction in _asked:
            return _asked[direction]
        key = direction, batch, kind, device, ways
        if key not in self.divisions:
            self.divisions[key] = self._divided(direction, batch, kind, device, ways)
        return self.divisions[key]

    def _divided(
        self, direction: str, batch: int, kind: torch.dtype, device: torch.device, ways: int
    ) -> Partition | None:
        if device.type == "cpu":  # the interpreter runs one program after another, so each must be alone
            return Partition(16, max(16, 1 << (self.step.size - 1).bit_length()), poll="atomic")
        chip = torch.cuda.get_device_properties(device)
        shared = min(partition.SHARED, getattr(chip, "shared_memory_per_block_optin", math.inf) - RESERVED)
        processors = chip.multi_processor_count // ways
        clusters = chip.major == TRIED
        return partition.partition(self.program(direction), batch, kind.itemsize, processors, shared, clusters)

    def program(self, direction: str) -> StepIR:
        return self.step if direction == "forward" else self.adjoint.program

    def kernel(
        self,
        direction: str,
        kept: tuple[int, ...],
        batch: int,
        kind: torch.dtype,
        device: torch.device,
        downs: tuple[bool, ...],
    ) -> Kernel:
        """`downs`: for each way of the launch, whether it walks down."""
        precision = "ieee" if _exact(kind) else "tf32"
        known = direction, kept, batch, kind, device, downs, precision, _asked.get(direction)
        if known not in self.settled:
            division = self.division(direction, batch, kind, device, len(downs))
            assert division is not None
            assert len(set(downs)) == len(downs)
            key = direction, kept, division, kind, downs, precision
            if key not in self.kernels:
                program = self.program(direction)
                self.kernels[key] = Kernel(program, kept, division, kind, downs[0], precision, len(downs) == 2)
            self.settled[known] = self.kernels[key]
        return self.settled[known]


_plans: WeakKeyDictionary[nn.Module, dict[tuple[bool, bool, bool], Plan | str]] = WeakKeyDictionary()


def plan(cell: Any, ragged: bool = False, careful: bool = False) -> Plan | str:
    """The cell's plan, or the reason why it has none; made once. `careful`: digits count more than time."""
    known = _plans.setdefault(cell, {})
    key = cell.training, ragged, careful
    if key not in known:
        step = step_ir(cell, ragged, careful)
        known[key] = step if isinstance(step, str) else Plan(step)
    return known[key]


@contextmanager
def dividing(**partitions: Partition) -> Iterator[None]:
    """For tests and benchmarks: these divisions of `forward` and `backward` instead of those that would be chosen."""
    before = dict(_asked)
    _asked.update(partitions)
    try:
        yield
    finally:
        _asked.clear()
        _asked.update(before)


def obstacle(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why this form cannot run."""
    if taps.listening():
        return "a recorder is listening"
    if x.device.type != "cuda" and not (interpreted() and x.device.type == "cpu"):
        return f"generated kernels need a CUDA device, not {x.device.type}"
    if not _has_triton():
        return "triton is not installed"
    if x.numel() == 0:
        return "the batch is empty"
    kind = _kind(cell, x)
    if kind not in KINDS:
        return f"generated kernels do not compute in {str(kind).removeprefix('torch.')}"
    return _unfit(cell, x, kind, plan(cell, lengths is not None, _exact(kind)))


def _unfit(cell: Any, x: Sequence, kind: torch.dtype, made: Plan | str, ways: int = 1) -> str | None:
    if isinstance(made, str):
        return made
    for direction in ("forward", "backward"):
        if made.division(direction, len(x), kind, x.device, ways) is None:
            what = f"{'twice ' if ways > 1 else ''}{len(x)} rows and {cell.hidden_size} units of {cell.name}"
            return f"{what} do not fit on this GPU at once"
    return None


def apart(ahead: Any, back: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why two cells that both have kernels cannot run in one launch."""
    kind = _kind(ahead, x)
    made, other = (plan(cell, lengths is not None, _exact(kind)) for cell in (ahead, back))
    if isinstance(made, str) or isinstance(other, str) or made.step != other.step or kind != _kind(back, x):
        return "the two cells are not of one kind"
    return _unfit(ahead, x, kind, made, ways=2)


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why the vendor is as fast or faster, as measured on an H200."""
    if x.device.type == "cuda" and _capability(x.device) != TRIED:
        return "its kernels were tried on Hopper GPUs alone, so elsewhere they run only when asked for"
    if isinstance(cell.vendor(), str):
        return None
    if x.shape[1] < SHORT:
        return f"below {SHORT} steps the vendor's kernel is faster"
    kind = _kind(cell, x)
    if _exact(kind):
        return "with all digits of float32 the vendor's kernel is faster"
    few = kind != torch.bfloat16 and cell.hidden_size <= FEW
    return f"up to {FEW} units the vendor's kernel is as fast" if few else None


@cache
def _capability(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    return f"a kernel generated for {cell.name}"


def _kind(cell: Any, x: Sequence) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else first_parameter(cell).dtype


def run(cell: Any, x: Sequence, state: State, lengths: Lengths | None, down: bool = False) -> tuple[Sequence, State]:
    """`down` walks from each row's last real position to its first; outputs stay in their places."""
    kind = _kind(cell, x)
    made = _made(cell, lengths, kind)
    (found,) = walked(made, kind, (down,), lengths, [_way(made, kind, cell, x, state)])
    return found


def run_both(
    cells: tuple[Any, Any], x: Sequence, states: tuple[State, State], lengths: Lengths | None
) -> list[tuple[Sequence, State]]:
    """Two cells at once, the first up, the second down, where `apart` says nothing against it."""
    kind = _kind(cells[0], x)
    made = _made(cells[0], lengths, kind)
    ways = [_way(made, kind, cell, x, state) for cell, state in zip(cells, states, strict=True)]
    return walked(made, kind, (False, True), lengths, ways)


def _exact(kind: torch.dtype) -> bool:
    """Whether products have all digits of float32."""
    return kind == torch.float32 and torch.get_float32_matmul_precision() == "highest"


def _made(cell: Any, lengths: Lengths | None, kind: torch.dtype) -> Plan:
    made = plan(cell, lengths is not None, _exact(kind))
    assert isinstance(made, Plan)
    return made


def _way(made: Plan, kind: torch.dtype, cell: Any, x: Sequence, state: State) -> Way:
    weights = {}
    for name in made.names:
        one = active_weight(cell, name)
        if one.dtype != kind and name in made.multiplied:
            one = one.to(kind)
        weights[name] = one if one.is_contiguous() else one.contiguous()
    return Way(_drive(made, cell, x), state, weights)


def _drive(made: Plan, cell: Any, x: Sequence) -> Sequence:
    if not misaligned(x):
        return cell.drive(x)
    made.driving = made.driving or InputProjection(cell)
    found = made.driving.weight_and_bias(cell, x)
    return cell.drive(x) if found is None else linear(x, *found)
