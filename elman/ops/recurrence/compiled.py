"""The compiled form: C++ written for this very cell, forward and backward, that walks whole sequences on a CPU.

Forward keeps what the derivative of a step needs, so no gate is computed twice. Backward walks the other way with a
second function; the gradients of matrices come afterwards from all steps at once, in one product each.
"""

from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elman.ops import taps
from elman.ops.native import build
from elman.ops.native.memory import NoCompiler
from elman.ops.recurrence.adjoint import Adjoint, derive
from elman.ops.recurrence.cpp import emit
from elman.ops.recurrence.evaluating import add_matrix_gradients, joined
from elman.ops.recurrence.steps import Way, step_of, walked, weights_of
from elman.ops.recurrence.units import ROW, Program
from elman.ops.recurrence.walking import Walk, load
from elman.shapes import Lengths, Sequence, State

KINDS = (torch.float32, torch.float64)
DEAR = {"sigmoid", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "erf"}
SHORT = 12  # steps; below, packing the weights takes as long as they save
WIDE = 512  # units from which on oneDNN's LSTM is slower
LEAST = 1 << 22  # multiplications by one recurrent matrix in one call: with all else, about a millisecond


class Plan:
    """A step, its derivative, and the functions that were made for them."""

    def __init__(self, step: Program, kind: torch.dtype):
        self.step, self.kind, self.kinds = step, kind, step.kinds()

    @cached_property
    def adjoint(self) -> Adjoint:
        return derive(self.step, DEAR)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """What backward reads of each step: for the adjoint, then for the gradients of matrices."""
        heard = [arg for product in self.adjoint.products for arg in self.step.nodes[product].args]
        return tuple(dict.fromkeys([*self.adjoint.kept, *heard]))

    @cached_property
    def adjoints(self) -> tuple[int, ...]:
        """What backward hands out: the adjoints of parts of the drive, then those of products that are not the same."""
        given, count = self.adjoint.program.given, len(self.adjoint.drive)
        return (*given[:count], *dict.fromkeys(node for node in given[count:] if node not in given[:count]))

    @cached_property
    def walks(self) -> list[Walk]:
        """Forward and backward."""
        forward = emit("forward", self.step, (*self.step.given, *self.kept))
        backward = emit("backward", self.adjoint.program, self.adjoints)
        return load(self.kind, [(self.step, forward), (self.adjoint.program, backward)])


_plans: WeakKeyDictionary[nn.Module, dict[tuple[bool, bool, torch.dtype], Plan | str]] = WeakKeyDictionary()


def plan(cell: Any, ragged: bool = False) -> Plan | str:
    """The cell's plan, or the reason why it has none; made once."""
    kind = _kind(cell)
    known, key = _plans.setdefault(cell, {}), (cell.training, ragged, kind)
    if key not in known:
        step = step_of(cell, ragged, careful=True)
        known[key] = step if isinstance(step, str) else Plan(step, kind)
    return known[key]


def _kind(cell: Any) -> torch.dtype:
    return next(cell.parameters()).dtype


def obstacle(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why this form cannot run."""
    problem = _unable(cell, x)
    made = problem or plan(cell, lengths is not None)
    return made if isinstance(made, str) else None


def _unable(cell: Any, x: Sequence) -> str | None:
    """What can be told without a look at the cell's equations."""
    kind = _kind(cell)
    traced = type(x) not in (Tensor, nn.Parameter) or torch.jit.is_tracing() or torch.compiler.is_compiling()
    problems = {
        "a recorder is listening": taps.listening(),
        f"compiled steps need a CPU, not {x.device.type}": x.device.type != "cpu",
        "the batch is empty": x.numel() == 0,
        "under autocast steps are not compiled": torch.is_autocast_enabled("cpu"),
        f"compiled steps do not compute in {str(kind).removeprefix('torch.')}": kind not in KINDS,
        "the model is being traced": traced,
    }
    if any(problems.values()):
        return next(reason for reason, holds in problems.items() if holds)
    try:
        build.compiler()
    except NoCompiler as reason:
        return str(reason)
    return None


def drawback(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """Why another form should run.

    It depends on shapes alone, never on what ran before: a run that is resumed must take the same form again.
    """
    problem = _unable(cell, x) or _slower(cell, x, lengths)
    made = problem or plan(cell, lengths is not None)
    if isinstance(made, str):
        return made
    try:
        made.walks  # noqa: B018
    except NoCompiler as reason:
        return str(reason)
    return None


def _slower(cell: Any, x: Sequence, lengths: Lengths | None) -> str | None:
    """As measured on one core (elman bench cells)."""
    if x.shape[0] * x.shape[1] * cell.hidden_size**2 < LEAST:
        return "so little work is not worth a compiler's time"
    if x.shape[1] < SHORT:
        return f"below {SHORT} steps compiled ones are no faster"
    call = cell.vendor()
    if cell.hidden_size < WIDE and lengths is None and not isinstance(call, str) and call.kernel == "lstm":
        return f"below {WIDE} units the vendor's LSTM is as fast"
    return None


def title(cell: Any, x: Sequence, lengths: Lengths | None) -> str:
    return f"C++ generated for {cell.name}"


def run(cell: Any, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
    made = plan(cell, lengths is not None)
    assert isinstance(made, Plan)
    way = Way(cell.drive(x), state, weights_of(cell, made.step))
    (found,) = walked(_Recurrence, (made, lengths), [way])
    return found


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: Any, drive: Tensor, *rest: Tensor) -> Any:
        made, lengths, saving, names = settings
        step, kinds = made.step, made.kinds
        count, (batch, time, _) = len(step.carried), drive.shape
        drive = _rows(drive, made.kind)
        weights = dict(zip(names, (_rows(one, made.kind) for one in rest[count:]), strict=True))
        outputs = drive.new_empty(batch, time, step.size)
        slots = batch, time if saving else 1  # where nothing is saved, each step writes over the last
        kept = [drive.new_empty(slots if kinds[index] == ROW else (*slots, step.size)) for index in made.kept]
        stored = [outputs, *(one if saving else one.expand(-1, time, *one.shape[2:]) for one in kept)]
        loads = {("drive", part): one for part, one in enumerate(drive.split(step.size, -1))}
        initial = [_rows(part, made.kind) for part in rest[:count]]
        final, _ = made.walks[0](loads, initial, weights, stored, lengths)
        if saving:
            ctx.settings, ctx.width, ctx.kinds = settings, drive.shape[-1], [one.dtype for one in (drive, *rest)]
            ctx.save_for_backward(*kept, *rest[count:])
        return (outputs, *final)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, *d_final: Tensor) -> Any:
        made, lengths, _, names = ctx.settings
        step, adjoint, size = made.step, made.adjoint, made.step.size
        kept = dict(zip(made.kept, ctx.saved_tensors, strict=False))
        weights = dict(zip(names, (_rows(one, made.kind) for one in ctx.saved_tensors[len(kept) :]), strict=True))
        batch, time, _ = d_output.shape
        parts = ctx.width // size
        written = d_output.new_empty(batch, time, parts + len(made.adjoints) - len(adjoint.drive), size)
        for part in set(range(parts)) - set(adjoint.drive):
            written[:, :, part] = 0
        places = [*adjoint.drive, *range(parts, written.shape[2])]
        place = dict(zip(made.adjoints, places, strict=True))
        loads = {("kept", number): kept[index] for number, index in enumerate(adjoint.kept)}
        loads["output", 0] = _rows(d_output, made.kind)
        stored = [written[:, :, one] for one in places]
        d_initial, sums = made.walks[1](
            loads, [_rows(one, made.kind) for one in d_final], weights, stored, lengths, down=True
        )
        products = dict(zip(adjoint.products, adjoint.program.given[len(adjoint.drive) :], strict=True))

        def side_by_side(indices: list[int]) -> Tensor:
            return joined(written, [place[products[index]] for index in indices]).reshape(batch * time, -1)

        needed = dict(zip(names, ctx.needs_input_grad[2 + len(d_final) :], strict=True))
        gradients = {name: torch.zeros_like(one) for name, one in weights.items() if needed[name]}
        add_matrix_gradients(step, adjoint.products, side_by_side, lambda index: kept[index].view(-1, size), gradients)
        for (name, part), total in zip(adjoint.vectors, sums, strict=True):
            if name in gradients:
                gradients[name].view(-1, size)[part] += total.sum(0)
        d_drive = joined(written, list(range(parts)))
        found = [d_drive, *d_initial, *(gradients.get(name) for name in names)]
        return (None, *(one if one is None else _rows(one, kind) for one, kind in zip(found, ctx.kinds, strict=True)))


def _rows(tensor: Tensor, kind: torch.dtype) -> Tensor:
    """In this dtype, with the numbers of a row side by side."""
    tensor = tensor if tensor.dtype == kind else tensor.to(kind)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
