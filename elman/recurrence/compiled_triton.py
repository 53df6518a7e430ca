"""The generated form: Triton kernels made for one cell, forward and backward, that run a whole sequence in one launch.

A CompiledCell has a cell's step and its derivative as programs of the IR, and their kernels; compiler.triton.autograd
runs them. Two cells of one architecture, one for each direction, can share a launch. See docs/compiler.md.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import torch

from elman.compiler.autodiff import Adjoint, differentiate
from elman.compiler.cell_program import InputProjection, active_weight, cached_per_cell, first_parameter, step_ir
from elman.compiler.interpreter import aligned_linear, misaligned
from elman.compiler.ir import StepIR
from elman.compiler.triton import search
from elman.compiler.triton.autograd import DirectionInputs, Reverse, run_recurrence
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.partition import Partition
from elman.compiler.triton.saved_for_backward import SavePlan
from elman.compiler.triton.triton_ops import interpreted
from elman.shapes import Lengths, Sequence, State

RESERVED = 1024  # bytes of shared memory per thread block that CUDA keeps
HOPPER = 9  # compute capability: the only one on which kernels were measured
FEW_UNITS = 64  # units; up to here cuDNN is as fast, except in bf16
SHORT = 32  # steps; below, launching takes the host longer than cuDNN takes in all
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HAS_TRITON = find_spec("triton") is not None
_forced: dict[str, Partition] = {}


class CompiledCell:
    """A step and its adjoint, and kernels for each direction, batch size, dtype and device that was asked for."""

    def __init__(self, step: StepIR):
        self.step = step
        self.names = step.parameters()
        self.matmul_weights = {one.parameter for node in step.nodes if node.op == "matmul" for one in node.detail}
        self.driving: InputProjection | None = None
        self.kernels: dict[Any, Kernel] = {}
        self._found = cache(self._search)  # a search takes as long as a short sequence

    @cached_property
    def adjoint(self) -> Adjoint:
        return differentiate(self.step)

    @cached_property
    def save_plan(self) -> SavePlan:
        return SavePlan(self.step, self.adjoint)

    def stored(self, saving: bool) -> tuple[int, ...]:
        """Nodes that forward stores; `saving`: for a backward pass too."""
        return tuple(dict.fromkeys((*self.step.outputs, *(self.save_plan.saved if saving else ()))))

    def partition(
        self, which: str, batch: int, dtype: torch.dtype, device: torch.device, directions: int = 1
    ) -> Partition | None:
        """Of the "forward" or "backward" kernel; None if nothing fits on the device."""
        return _forced.get(which) or self._found(which, batch, dtype, device, directions)

    def _search(
        self, which: str, batch: int, dtype: torch.dtype, device: torch.device, directions: int
    ) -> Partition | None:
        if device.type == "cpu":  # the interpreter runs one program after another, so one has all units
            return Partition(16, max(16, 1 << (self.step.size - 1).bit_length()))
        chip = torch.cuda.get_device_properties(device)
        shared = min(search.SHARED, getattr(chip, "shared_memory_per_block_optin", math.inf) - RESERVED)
        processors = chip.multi_processor_count // directions
        clusters = chip.major == HOPPER
        return search.choose_partition(self.program(which), batch, dtype.itemsize, processors, shared, clusters)

    def program(self, which: str) -> StepIR:
        return self.step if which == "forward" else self.adjoint.program

    def kernel(
        self, which: str, saved: tuple[int, ...], batch: int, dtype: torch.dtype, device: torch.device, reverse: Reverse
    ) -> Kernel:
        part = self.partition(which, batch, dtype, device, len(reverse))
        assert part is not None
        assert len(set(reverse)) == len(reverse)
        key = which, saved, part, dtype, reverse, "ieee" if _exact(dtype) else "tf32"
        if key not in self.kernels:
            args = saved, part, dtype, reverse[0], key[-1], len(reverse) == 2
            self.kernels[key] = Kernel(self.program(which), *args)
        return self.kernels[key]


@cached_per_cell
def compiled_cell(cell: Any, ragged: bool = False, exact: bool = False) -> CompiledCell | str:
    """The compiled cell, made once, or the reason why there is none. `ragged`: for rows of unequal length; `exact`: for
    float32 without TF32."""
    step = step_ir(cell, ragged, exact)
    return step if isinstance(step, str) else CompiledCell(step)


@contextmanager
def use_partitions(**partitions: Partition) -> Iterator[None]:
    """For tests and benchmarks: partitions of `forward` and `backward` kernels instead of the cost model's choice."""
    before = dict(_forced)
    _forced.update(partitions)
    try:
        yield
    finally:
        _forced.clear()
        _forced.update(before)


def obstacle(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why this form cannot run."""
    if x.device.type != "cuda" and not (interpreted() and x.device.type == "cpu"):
        return f"generated kernels need a CUDA device, not {x.device.type}"
    if not HAS_TRITON:
        return "triton is not installed"
    if x.numel() == 0:
        return "the batch is empty"
    dtype = _dtype(cell, x)
    if dtype not in DTYPES:
        return f"generated kernels do not compute in {str(dtype).removeprefix('torch.')}"
    return _does_not_fit(cell, x, dtype, compiled_cell(cell, lengths is not None, _exact(dtype)))


def _does_not_fit(
    cell: Any, x: Sequence, dtype: torch.dtype, compiled: CompiledCell | str, directions: int = 1
) -> str | None:
    if isinstance(compiled, str):
        return compiled
    for which in ("forward", "backward"):
        if compiled.partition(which, len(x), dtype, x.device, directions) is None:
            what = f"{'twice ' if directions > 1 else ''}{len(x)} rows and {cell.hidden_size} units of {cell.name}"
            return f"{what} do not fit on this GPU at once"
    return None


def apart(ahead: Any, back: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why two cells that both have kernels cannot run in one launch."""
    dtype = _dtype(ahead, x)
    first, second = (compiled_cell(cell, lengths is not None, _exact(dtype)) for cell in (ahead, back))
    if isinstance(first, str) or isinstance(second, str) or first.step != second.step or dtype != _dtype(back, x):
        return "the two cells differ in architecture or dtype"
    return _does_not_fit(ahead, x, dtype, first, directions=2)


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why cuDNN is as fast or faster, as measured on an H200."""
    if x.device.type == "cuda" and _capability(x.device) != HOPPER:
        return "its kernels were measured on Hopper GPUs only, so elsewhere they run on request"
    if isinstance(cell.vendor(), str):
        return None
    if x.shape[1] < SHORT:
        return f"below {SHORT} steps the vendor's kernel is faster"
    dtype = _dtype(cell, x)
    if _exact(dtype):
        return "in float32 without TF32 the vendor's kernel is faster"
    few = dtype != torch.bfloat16 and cell.hidden_size <= FEW_UNITS
    return f"up to {FEW_UNITS} units the vendor's kernel is as fast" if few else None


@cache
def _capability(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    return f"a kernel generated for {cell.name}"


def _dtype(cell: Any, x: Sequence) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else first_parameter(cell).dtype


def run(cell: Any, x: Sequence, state: State, lengths: Lengths | None, reverse: bool = False) -> tuple[Sequence, State]:
    """`reverse`: from each row's last real position to its first; outputs stay in sequence order."""
    (found,) = run_cells((cell,), x, (state,), lengths, (reverse,))
    return found


def run_cells(
    cells: Any, x: Sequence, states: Any, lengths: Lengths | None, reverse: Reverse
) -> list[tuple[Sequence, State]]:
    """One or two cells in one launch; two where `apart` gives no reason against it."""
    dtype = _dtype(cells[0], x)
    compiled = compiled_cell(cells[0], lengths is not None, _exact(dtype))
    assert isinstance(compiled, CompiledCell)
    inputs = [_inputs(compiled, dtype, cell, x, state) for cell, state in zip(cells, states, strict=True)]
    return run_recurrence(compiled, dtype, reverse, lengths, inputs)


def _exact(dtype: torch.dtype) -> bool:
    """Whether products are in full float32, not in TF32."""
    return dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"


def _inputs(compiled: CompiledCell, dtype: torch.dtype, cell: Any, x: Sequence, state: State) -> DirectionInputs:
    weights = {}
    for name in compiled.names:
        one = active_weight(cell, name)
        if one.dtype != dtype and name in compiled.matmul_weights:
            one = one.to(dtype)
        weights[name] = one if one.is_contiguous() else one.contiguous()
    return DirectionInputs(_drive(compiled, cell, x), state, weights)


def _drive(compiled: CompiledCell, cell: Any, x: Sequence) -> Sequence:
    """The input's part of all steps; rows that are not aligned are padded, for which cuBLAS has faster kernels."""
    if not misaligned(x):
        return cell.drive(x)
    compiled.driving = compiled.driving or InputProjection(cell)
    found = compiled.driving.weight_and_bias(cell, x)
    return cell.drive(x) if found is None else aligned_linear(x, *found)
