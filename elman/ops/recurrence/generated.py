"""The generated form: kernels written for this very cell, forward and backward, that run a whole sequence on the GPU.

Forward stores the states. Backward computes from them, in matrix products over all of time, what the derivative of a
step needs, then walks back with a second kernel, then takes the gradients of matrices from all steps at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from elman.ops import taps
from elman.ops.forms import unmeasured
from elman.ops.recurrence import partition
from elman.ops.recurrence.adjoint import Adjoint, derive
from elman.ops.recurrence.emit import interpreted
from elman.ops.recurrence.evaluating import add_matrix_gradients, joined
from elman.ops.recurrence.kernel import Kernel
from elman.ops.recurrence.partition import Partition
from elman.ops.recurrence.recomputing import Look, Values
from elman.ops.recurrence.steps import step_of, weights_of
from elman.ops.recurrence.units import Program
from elman.shapes import Lengths, Sequence, State

MEASURED = False  # by elman bench recurrence
KINDS = (torch.float32, torch.float16, torch.bfloat16)
_asked: dict[str, Partition] = {}


class Plan:
    """A step, its derivative, and the kernels that were made for them."""

    def __init__(self, step: Program):
        self.step = step
        self.kernels: dict[Any, Kernel] = {}

    @cached_property
    def adjoint(self) -> Adjoint:
        return derive(self.step)

    def division(self, direction: str, batch: int, kind: torch.dtype, device: torch.device) -> Partition | None:
        if direction in _asked:
            return _asked[direction]
        if device.type == "cpu":  # the interpreter runs one program after another, so each must be alone
            return Partition(16, max(16, 1 << (self.step.size - 1).bit_length()), poll="atomic")
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        return partition.partition(self.program(direction), batch, kind.itemsize, processors)

    def program(self, direction: str) -> Program:
        return self.step if direction == "forward" else self.adjoint.program

    def kernel(
        self, direction: str, kept: tuple[int, ...], batch: int, kind: torch.dtype, device: torch.device, down: bool
    ) -> Kernel:
        division = self.division(direction, batch, kind, device)
        assert division is not None
        precision = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
        key = direction, kept, division, kind, down, precision
        if key not in self.kernels:
            self.kernels[key] = Kernel(self.program(direction), kept, division, kind, down, precision)
        return self.kernels[key]


_plans: WeakKeyDictionary[nn.Module, dict[tuple[bool, bool], Plan | str]] = WeakKeyDictionary()


def plan(cell: Any, ragged: bool = False) -> Plan | str:
    """The cell's plan, or the reason why it has none; made once."""
    known = _plans.setdefault(cell, {})
    key = cell.training, ragged
    if key not in known:
        step = step_of(cell, ragged)
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
    if find_spec("triton") is None:
        return "triton is not installed"
    if x.numel() == 0:
        return "the batch is empty"
    kind = _kind(cell, x)
    if kind not in KINDS:
        return f"generated kernels do not compute in {str(kind).removeprefix('torch.')}"
    return _unfit(cell, x, kind, plan(cell, lengths is not None))


def _unfit(cell: Any, x: Sequence, kind: torch.dtype, made: Plan | str) -> str | None:
    if isinstance(made, str):
        return made
    for direction in ("forward", "backward"):
        if made.division(direction, len(x), kind, x.device) is None:
            return f"{len(x)} rows and {cell.hidden_size} units of {cell.name} do not fit on this GPU at once"
    return None


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why the vendor is faster, as far as its own times on an H200 tell."""
    if not MEASURED:
        return unmeasured()
    call = cell.vendor()
    kind = _kind(cell, x)
    if isinstance(call, str) or kind == torch.bfloat16:
        return None
    if cell.hidden_size <= 128:
        return "up to 128 units the vendor's kernel is as fast"
    if kind == torch.float16 and call.kernel == "lstm" and len(x) <= 16 and lengths is None:
        return "the vendor's kernel for an LSTM of 16 rows in float16 is faster"
    return None


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    return f"a kernel generated for {cell.name}"


def _kind(cell: Any, x: Sequence) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else next(cell.parameters()).dtype


def run(cell: Any, x: Sequence, state: State, lengths: Lengths | None, down: bool = False) -> tuple[Sequence, State]:
    """`down` walks from each row's last real position to its first; outputs stay in their places."""
    made = plan(cell, lengths is not None)
    assert isinstance(made, Plan)
    kind = _kind(cell, x)
    drive = cell.drive(x)
    parts, form = pytree.tree_flatten(state)
    weights = weights_of(cell, made.step)
    matrices = {matrix.parameter for node in made.step.nodes if node.op == "product" for matrix in node.detail}
    weights = {name: one.to(kind if name in matrices else one.dtype).contiguous() for name, one in weights.items()}
    saving = torch.is_grad_enabled() and any(one.requires_grad for one in (drive, *parts, *weights.values()))
    settings = made, kind, down, saving, lengths, tuple(weights)
    outputs, *finals = _Recurrence.apply(settings, drive, *parts, *weights.values())
    finals = [final.to(part.dtype) for final, part in zip(finals, parts, strict=True)]
    return outputs, pytree.tree_unflatten(finals, form)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: Any, drive: Tensor, *rest: Tensor) -> Any:
        made, kind, down, saving, lengths, names = settings
        step = made.step
        count = len(step.carried)
        initial, weights = list(rest[:count]), dict(zip(names, rest[count:], strict=True))
        batch, time, _ = drive.shape
        size = step.size
        drive = drive if drive.stride(-1) == 1 else drive.contiguous()
        kept = tuple(dict.fromkeys([*step.given, *(step.carried if saving else ())]))
        kernel = made.kernel("forward", kept, batch, kind, drive.device, down)
        stored = kernel.emitted.stored
        history = torch.empty(len(stored), kernel.rows(batch), time + 1, kernel.width, dtype=kind, device=drive.device)
        start = history[:, :, time if down else 0]
        start[:, batch:] = 0
        for index, part in zip(step.carried, initial, strict=True):
            if index in stored:
                start[stored.index(index), :batch, :size] = part
        loads = {("drive", part): one for part, one in enumerate(drive.split(size, -1))}
        final, _ = kernel(history, loads, initial, weights, lengths)
        look = Look(step, stored, history[:, :batch, :, :size], down)
        ctx.settings, ctx.stored, ctx.kinds = settings, stored, [part.dtype for part in initial]
        if saving:
            ctx.save_for_backward(drive, history, *weights.values())
        return (look.at(step.given[0]), *final)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, *d_final: Tensor) -> Any:
        made, kind, down, _, lengths, names = ctx.settings
        drive, history, *rest = ctx.saved_tensors
        weights = dict(zip(names, rest, strict=True))
        step, adjoint = made.step, made.adjoint
        batch, time, width = drive.shape
        size = step.size
        look = Look(step, ctx.stored, history[:, :batch, :, :size], down)
        values = Values(step, look, drive, weights, lengths)
        kernel = made.kernel("backward", adjoint.program.given, batch, kind, drive.device, not down)
        places = len(kernel.emitted.stored)
        written = torch.empty(kernel.rows(batch), time, places, kernel.width, dtype=kind, device=drive.device)
        loads = {("kept", place): value for place, value in enumerate(values.kept(adjoint.kept))}
        loads["output", 0] = d_output if d_output.stride(-1) == 1 else d_output.contiguous()
        d_initial, sums = kernel(written.permute(2, 0, 1, 3), loads, list(d_final), weights, lengths)
        place = dict(zip(adjoint.products, map(kernel.place, adjoint.program.given[len(adjoint.drive) :]), strict=True))
        whole = written[:batch, :, :, :size]

        def side_by_side(products: list[int]) -> Tensor:
            return joined(whole, [place[index] for index in products]).reshape(batch * time, -1)

        gradients = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        add_matrix_gradients(step, adjoint.products, side_by_side, values.flat, gradients)
        for (name, part), total in zip(adjoint.vectors, sums, strict=True):
            gradients[name].view(-1, size)[part] += total.sum(0).to(gradients[name].dtype)
        d_drive = _drive_gradient(whole, adjoint, kernel, width // size).to(drive.dtype)
        d_states = [part.to(kind) for part, kind in zip(d_initial, ctx.kinds, strict=True)]
        return (None, d_drive, *d_states, *gradients.values())


def _drive_gradient(whole: Tensor, adjoint: Adjoint, kernel: Kernel, parts: int) -> Tensor:
    places = dict(zip(adjoint.drive, map(kernel.place, adjoint.program.given), strict=False))
    if len(places) == parts:
        return joined(whole, [places[part] for part in range(parts)])
    zero = torch.zeros_like(whole[:, :, 0])
    return torch.cat([whole[:, :, places[part]] if part in places else zero for part in range(parts)], -1)
