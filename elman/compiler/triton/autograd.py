"""The two passes of the generated form, a launch each, for one way through a sequence or for both at once.

Forward stores the states and what the derivative of a step needs of products. Backward walks back with a second kernel,
then takes the gradients of matrices from all steps at once.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.compiler.autodiff import Adjoint
from elman.compiler.interpreter import concat_slots, matrix_gradients
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.saved_for_backward import Look, Values
from elman.ops.state import map_state, tensors
from elman.shapes import Lengths, Sequence, State

Results = list[tuple[Sequence, State]]


class Way(NamedTuple):
    """What one walk through a sequence is given."""

    drive: Tensor
    state: State
    weights: dict[str, Tensor]


def walked(made: Any, kind: torch.dtype, downs: tuple[bool, ...], lengths: Lengths | None, ways: list[Way]) -> Results:
    """Each way's outputs and last state, from a plan; `downs` says of each way whether it walks down."""
    given = [[way.drive, *_parts(way.state), *way.weights.values()] for way in ways]
    every = [one for own in given for one in own]
    saving = torch.is_grad_enabled() and any(one.requires_grad for one in every)
    settings = made, kind, downs, lengths
    results = iter(_Passes.apply(settings, *every) if saving else _forward(settings, given, saving=False).results)
    return [(next(results), map_state(lambda part: _as(next(results), part.dtype), way.state)) for way in ways]


class _Walked(NamedTuple):
    results: list[Tensor]  # outputs and last state, way after way
    history: Tensor
    stored: tuple[int, ...]
    drives: list[Tensor]  # as they were read


def _forward(settings: Any, given: list[list[Tensor]], saving: bool) -> _Walked:
    made, kind, downs, lengths = settings
    step, parts = made.step, 1 + len(made.step.next_state)
    drives = [_rows(own[0]) for own in given]
    batch, time, width = drives[0].shape
    kernel = made.kernel("forward", made.stored(saving), batch, kind, drives[0].device, downs)
    stored = kernel.emitted.stored
    shape = len(downs), len(stored), kernel.rows(batch), time + 1, kernel.width
    history = torch.empty(shape, dtype=kind, device=drives[0].device)
    loads = [{("drive", part): one for part, one in enumerate(drive.chunk(width // step.size, -1))} for drive in drives]
    weights = [dict(zip(made.names, own[parts:], strict=True)) for own in given]
    final, _ = kernel(history, loads, [own[1:parts] for own in given], weights, lengths)
    found = []
    for way, (down, last) in enumerate(zip(downs, _by_way(final.unbind(), downs), strict=True)):
        found += [Look(step, stored, history, way, batch, down).at(step.outputs[0]), *last]
    return _Walked(found, history, stored, drives)


class _Passes(torch.autograd.Function):
    """Knows only tensors: for each way the drive, the parts of the state and the weights; outputs and last state."""

    @staticmethod
    def forward(ctx: Any, settings: Any, *tensors: Tensor) -> Any:
        made, _, downs, _ = settings
        parts = 1 + len(made.step.next_state)
        given = _by_way(tensors, downs)
        found, history, stored, drives = _forward(settings, given, saving=True)
        ctx.settings, ctx.stored, ctx.kinds = settings, stored, [[part.dtype for part in own[1:parts]] for own in given]
        if not made.recall.reads_drive:  # what nobody reads needs no memory
            drives = [one.new_empty(()).expand(one.shape) for one in drives]
        ctx.save_for_backward(history, *drives, *(one for own in given for one in own[parts:]))
        ctx.set_materialize_grads(False)
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *wanted: Tensor | None) -> Any:
        made, kind, downs, lengths = ctx.settings
        step, adjoint = made.step, made.adjoint
        history, *rest = ctx.saved_tensors
        drives = rest[: len(downs)]
        weights = [dict(zip(made.names, own, strict=True)) for own in _by_way(rest[len(downs) :], downs)]
        batch, time, _ = drives[0].shape
        device, stored = history.device, ctx.stored
        opposite = tuple(not down for down in downs)
        kernel = made.kernel("backward", adjoint.program.outputs, batch, kind, device, opposite)
        shape = len(downs), kernel.rows(batch), time, len(kernel.emitted.stored), kernel.width
        written = torch.empty(shape, dtype=kind, device=device)
        nothing = torch.zeros(step.size, device=device) if any(one is None for one in wanted) else None
        values, loads, d_final = [], [], []
        for way, (down, (d_output, *d_last)) in enumerate(zip(downs, _by_way(wanted, downs), strict=True)):
            look = Look(step, stored, history, way, batch, down)
            values.append(Values(made.recall, look, drives[way], weights[way], lengths))
            loads.append({("saved", place): value for place, value in enumerate(values[way].kept())})
            loads[way]["output", 0] = nothing.expand(batch, time, -1) if d_output is None else _rows(d_output)
            d_final.append([nothing.expand(batch, -1) if one is None else one for one in d_last])
        d_initial, sums = kernel(written.permute(0, 3, 1, 2, 4), loads, d_final, weights, lengths)
        found: list[Any] = [None]
        d_initial = _by_way(d_initial.unbind(), downs)
        sums = _by_way(sums.unbind() if adjoint.vectors else (), downs)
        for way, own in enumerate(values):
            whole = written[way, :batch, :, :, : step.size]
            found.append(_drive_gradient(whole, adjoint, kernel, own.drive))
            found += [_as(part, kind) for part, kind in zip(d_initial[way], ctx.kinds[way], strict=True)]
            found += _weight_gradients(whole, adjoint, kernel, own, sums[way])
        return tuple(found)


def _parts(state: State) -> list[Tensor]:
    return [part for _, part in tensors(state)]


def _as(tensor: Tensor, kind: torch.dtype) -> Tensor:
    return tensor if tensor.dtype == kind else tensor.to(kind)


def _by_way(tensors: Any, downs: tuple[bool, ...]) -> list[list[Tensor]]:
    """As many tensors for each way."""
    count = len(tensors) // len(downs)
    return [list(tensors[way * count : (way + 1) * count]) for way in range(len(downs))]


def _rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _weight_gradients(
    whole: Tensor, adjoint: Adjoint, kernel: Kernel, values: Values, sums: list[Tensor]
) -> list[Tensor]:
    place = dict(zip(adjoint.matmuls, map(kernel.place, adjoint.program.outputs[len(adjoint.drive) :]), strict=True))
    rows = whole.shape[0] * whole.shape[1]

    def side_by_side(products: list[int]) -> Tensor:
        return concat_slots(whole, [place[index] for index in products]).reshape(rows, -1)

    found = matrix_gradients(values.step, values.recall.heard, side_by_side, values.flat, values.weights)
    gradients = {name: found[name] if name in found else torch.zeros_like(one) for name, one in values.weights.items()}
    for (name, part), total in zip(adjoint.vectors, sums, strict=True):
        gradients[name].view(-1, values.step.size)[part] += total.sum(0).to(gradients[name].dtype)
    return list(gradients.values())


def _drive_gradient(whole: Tensor, adjoint: Adjoint, kernel: Kernel, drive: Tensor) -> Tensor:
    parts = drive.shape[-1] // whole.shape[-1]
    places = dict(zip(adjoint.drive, map(kernel.place, adjoint.program.outputs), strict=False))
    if len(places) == parts:
        return concat_slots(whole, [places[part] for part in range(parts)]).to(drive.dtype)
    zero = torch.zeros_like(whole[:, :, 0])
    found = [whole[:, :, places[part]] if part in places else zero for part in range(parts)]
    return torch.cat(found, -1).to(drive.dtype)
