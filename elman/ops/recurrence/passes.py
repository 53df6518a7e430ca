"""The two passes of the generated form, a launch each, for one way through a sequence or for both at once.

Forward stores the states. Backward computes from them, in matrix products over all of time, what the derivative of a
step needs, then walks back with a second kernel, then takes the gradients of matrices from all steps at once.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from elman.ops.recurrence.adjoint import Adjoint
from elman.ops.recurrence.evaluating import add_matrix_gradients, joined
from elman.ops.recurrence.kernel import Kernel
from elman.ops.recurrence.recomputing import Look, Values
from elman.shapes import Lengths, Sequence, State

Results = list[tuple[Sequence, State]]


class Way(NamedTuple):
    """What one walk through a sequence is given."""

    drive: Tensor
    state: State
    weights: dict[str, Tensor]


def walked(made: Any, kind: torch.dtype, downs: tuple[bool, ...], lengths: Lengths | None, ways: list[Way]) -> Results:
    """Each way's outputs and last state, from a plan; `downs` says of each way whether it walks down."""
    flat = [pytree.tree_flatten(way.state) for way in ways]
    pairs = zip(ways, flat, strict=True)
    tensors = [one for way, (parts, _) in pairs for one in (way.drive, *parts, *way.weights.values())]
    saving = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    results = iter(_Passes.apply((made, kind, downs, lengths, saving, tuple(ways[0].weights)), *tensors))
    found = []
    for parts, form in flat:
        outputs = next(results)
        finals = [next(results).to(part.dtype) for part in parts]
        found.append((outputs, pytree.tree_unflatten(finals, form)))
    return found


class _Passes(torch.autograd.Function):
    """Knows only tensors: for each way the drive, the parts of the state and the weights; outputs and last state."""

    @staticmethod
    def forward(ctx: Any, settings: Any, *tensors: Tensor) -> Any:
        made, kind, downs, lengths, saving, names = settings
        step, size = made.step, made.step.size
        count = len(step.carried)
        given = _by_way(tensors, downs)
        drives = [_rows(drive) for drive, *_ in given]
        initial = [own[1 : 1 + count] for own in given]
        weights = [dict(zip(names, own[1 + count :], strict=True)) for own in given]
        batch, time, _ = drives[0].shape
        device = drives[0].device
        kept = tuple(dict.fromkeys([*step.given, *(step.carried if saving else ())]))
        kernel = made.kernel("forward", kept, batch, kind, device, downs)
        stored = kernel.emitted.stored
        shape = len(downs), len(stored), kernel.rows(batch), time + 1, kernel.width
        history = torch.empty(shape, dtype=kind, device=device)
        for own, parts, down in zip(history, initial, downs, strict=True):
            start = own[:, :, time if down else 0]
            start[:, batch:] = 0
            for index, part in zip(step.carried, parts, strict=True):
                if index in stored:
                    start[stored.index(index), :batch, :size] = part
        loads = [{("drive", part): one for part, one in enumerate(drive.split(size, -1))} for drive in drives]
        finals, _ = kernel(history, loads, initial, weights, lengths)
        ctx.settings, ctx.stored, ctx.kinds = settings, stored, [[part.dtype for part in own] for own in initial]
        if saving:
            ctx.save_for_backward(history, *drives, *(one for own in weights for one in own.values()))
        looks = _looks(ctx, history, batch)
        return tuple(one for look, final in zip(looks, finals, strict=True) for one in (look.at(step.given[0]), *final))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *wanted: Tensor) -> Any:
        made, kind, downs, lengths, _, names = ctx.settings
        step, adjoint = made.step, made.adjoint
        history, *rest = ctx.saved_tensors
        drives = rest[: len(downs)]
        weights = [dict(zip(names, own, strict=True)) for own in _by_way(rest[len(downs) :], downs)]
        batch, time, _ = drives[0].shape
        opposite = tuple(not down for down in downs)
        kernel = made.kernel("backward", adjoint.program.given, batch, kind, history.device, opposite)
        shape = len(downs), kernel.rows(batch), time, len(kernel.emitted.stored), kernel.width
        written = torch.empty(shape, dtype=kind, device=history.device)
        values = [
            Values(step, look, drive, own, lengths)
            for look, drive, own in zip(_looks(ctx, history, batch), drives, weights, strict=True)
        ]
        d_ways = _by_way(wanted, downs)
        loads = []
        for own, (d_output, *_) in zip(values, d_ways, strict=True):
            loads.append({("kept", place): value for place, value in enumerate(own.kept(adjoint.kept))})
            loads[-1]["output", 0] = _rows(d_output)
        d_final = [own[1:] for own in d_ways]
        d_initial, sums = kernel(written.permute(0, 3, 1, 2, 4), loads, d_final, weights, lengths)
        found: list[Any] = [None]
        for way, own in enumerate(values):
            whole = written[way, :batch, :, :, : step.size]
            found.append(_drive_gradient(whole, adjoint, kernel, own.drive))
            found += [part.to(kind) for part, kind in zip(d_initial[way], ctx.kinds[way], strict=True)]
            found += _weight_gradients(whole, adjoint, kernel, own, sums[way])
        return tuple(found)


def _by_way(tensors: Any, downs: tuple[bool, ...]) -> list[list[Tensor]]:
    """As many tensors for each way."""
    count = len(tensors) // len(downs)
    return [list(tensors[way * count : (way + 1) * count]) for way in range(len(downs))]


def _rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _looks(ctx: Any, history: Tensor, batch: int) -> list[Look]:
    made, _, downs, *_ = ctx.settings
    real = history[:, :, :batch, :, : made.step.size]
    return [Look(made.step, ctx.stored, own, down) for own, down in zip(real, downs, strict=True)]


def _weight_gradients(whole: Tensor, adjoint: Adjoint, kernel: Kernel, values: Values, sums: Tensor) -> list[Tensor]:
    place = dict(zip(adjoint.products, map(kernel.place, adjoint.program.given[len(adjoint.drive) :]), strict=True))
    rows = whole.shape[0] * whole.shape[1]

    def side_by_side(products: list[int]) -> Tensor:
        return joined(whole, [place[index] for index in products]).reshape(rows, -1)

    gradients = {name: torch.zeros_like(weight) for name, weight in values.weights.items()}
    add_matrix_gradients(values.step, adjoint.products, side_by_side, values.flat, gradients)
    for (name, part), total in zip(adjoint.vectors, sums, strict=True):
        gradients[name].view(-1, values.step.size)[part] += total.sum(0).to(gradients[name].dtype)
    return list(gradients.values())


def _drive_gradient(whole: Tensor, adjoint: Adjoint, kernel: Kernel, drive: Tensor) -> Tensor:
    parts = drive.shape[-1] // whole.shape[-1]
    places = dict(zip(adjoint.drive, map(kernel.place, adjoint.program.given), strict=False))
    if len(places) == parts:
        return joined(whole, [places[part] for part in range(parts)]).to(drive.dtype)
    zero = torch.zeros_like(whole[:, :, 0])
    found = [whole[:, :, places[part]] if part in places else zero for part in range(parts)]
    return torch.cat(found, -1).to(drive.dtype)
