"""The autograd function of a compiled recurrence: one launch forward, one backward, for one direction or for both.

forward   kernel of the step, t = 0 .. T-1; stores states, and what backward needs (saved_for_backward)
backward  recompute kernel, if anything was not stored; kernel of the step's adjoint, t = T-1 .. 0, which stores the
          gradients of the drive and of products; then weight gradients as one matmul over all B · T positions
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.compiler.autodiff import Adjoint
from elman.compiler.interpreter import concat_slots, matrix_gradients
from elman.compiler.triton.launcher import Kernel
from elman.compiler.triton.saved_for_backward import SavedHistory, StepValues
from elman.ops.state import leaves, map_state
from elman.shapes import Lengths, Sequence, State

Reverse = tuple[bool, ...]  # for each direction of a launch, whether it runs from the last step to the first


class DirectionInputs(NamedTuple):
    """Of one direction. `drive`: the input's part of all steps, (B, T, parts · H)."""

    drive: Tensor
    state: State
    weights: dict[str, Tensor]


def run_recurrence(
    compiled: Any, dtype: torch.dtype, reverse: Reverse, lengths: Lengths | None, directions: list[DirectionInputs]
) -> list[tuple[Sequence, State]]:
    """Outputs and last state of each direction; `compiled` is a CompiledCell."""
    inputs = [[own.drive, *leaves(own.state), *own.weights.values()] for own in directions]
    flat = [tensor for own in inputs for tensor in own]
    saving = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in flat)
    call = compiled, dtype, reverse, lengths
    results = iter(_Recurrence.apply(call, *flat) if saving else _forward(call, inputs, saving=False)[0])
    return [(next(results), map_state(lambda part: next(results).to(part.dtype), own.state)) for own in directions]


def _forward(call: Any, inputs: list[list[Tensor]], saving: bool) -> Any:
    """Outputs and last state, direction after direction; history; its stored nodes; drives, contiguous along rows."""
    compiled, dtype, reverse, lengths = call
    step, parts = compiled.step, 1 + len(compiled.step.next_state)
    drives = [_contiguous_rows(own[0]) for own in inputs]
    batch, time, width = drives[0].shape
    kernel = compiled.kernel("forward", compiled.stored(saving), batch, dtype, drives[0].device, reverse)
    stored = kernel.stored
    shape = len(reverse), len(stored), kernel.rows(batch), time + 1, kernel.width
    history = torch.empty(shape, dtype=dtype, device=drives[0].device)
    loads = [{("drive", part): one for part, one in enumerate(drive.chunk(width // step.size, -1))} for drive in drives]
    weights = [dict(zip(compiled.names, own[parts:], strict=True)) for own in inputs]
    final, _ = kernel(history, loads, [own[1:parts] for own in inputs], weights, lengths)
    found = []
    for direction, (back, last) in enumerate(zip(reverse, _by_direction(final.unbind(), reverse), strict=True)):
        found += [SavedHistory(step, stored, history, direction, batch, back).node(step.outputs[0]), *last]
    return found, history, stored, drives


class _Recurrence(torch.autograd.Function):
    """Tensor arguments: for each direction drive, parts of the state, weights. Results: outputs, last state."""

    @staticmethod
    def forward(ctx: Any, call: Any, *flat: Tensor) -> Any:
        compiled, _, reverse, _ = call
        parts = 1 + len(compiled.step.next_state)
        inputs = _by_direction(flat, reverse)
        found, history, stored, drives = _forward(call, inputs, saving=True)
        ctx.call, ctx.stored, ctx.dtypes = call, stored, [[part.dtype for part in own[1:parts]] for own in inputs]
        if not compiled.save_plan.reads_inputs:  # free the memory
            drives = [one.new_empty(()).expand(one.shape) for one in drives]
        ctx.save_for_backward(history, *drives, *(one for own in inputs for one in own[parts:]))
        ctx.set_materialize_grads(False)
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        compiled, dtype, reverse, lengths = ctx.call
        step, adjoint = compiled.step, compiled.adjoint
        history, *rest = ctx.saved_tensors
        drives = rest[: len(reverse)]
        weights = [dict(zip(compiled.names, own, strict=True)) for own in _by_direction(rest[len(reverse) :], reverse)]
        batch, time, _ = drives[0].shape
        device, stored = history.device, ctx.stored
        opposite = tuple(not back for back in reverse)
        kernel = compiled.kernel("backward", adjoint.program.outputs, batch, dtype, device, opposite)
        shape = len(reverse), kernel.rows(batch), time, len(kernel.stored), kernel.width
        written = torch.empty(shape, dtype=dtype, device=device)
        zeros = torch.zeros(step.size, device=device) if any(one is None for one in gradients) else None
        values, loads, d_final = [], [], []
        per_direction = _by_direction(gradients, reverse)
        for direction, (back, (d_output, *d_last)) in enumerate(zip(reverse, per_direction, strict=True)):
            saved = SavedHistory(step, stored, history, direction, batch, back)
            own = StepValues(compiled.save_plan, saved, drives[direction], weights[direction], lengths)
            values.append(own)
            loads.append({("saved", place): value for place, value in enumerate(own.kept())})
            d_rows = zeros.expand(batch, time, -1) if d_output is None else _contiguous_rows(d_output)
            loads[-1]["output", 0] = d_rows
            d_final.append([zeros.expand(batch, -1) if one is None else one for one in d_last])
        d_initial, sums = kernel(written.permute(0, 3, 1, 2, 4), loads, d_final, weights, lengths)
        found: list[Any] = [None]
        d_initial = _by_direction(d_initial.unbind(), reverse)
        sums = _by_direction(sums.unbind() if adjoint.vectors else (), reverse)
        for direction, own in enumerate(values):
            d_nodes = written[direction, :batch, :, :, : step.size]
            found.append(_drive_gradient(d_nodes, adjoint, kernel, own.drive))
            found += [part.to(kind) for part, kind in zip(d_initial[direction], ctx.dtypes[direction], strict=True)]
            found += _weight_gradients(d_nodes, adjoint, kernel, own, sums[direction])
        return tuple(found)


def _by_direction(tensors: Any, reverse: Reverse) -> list[list[Tensor]]:
    """Splits a flat list evenly among the directions."""
    count = len(tensors) // len(reverse)
    return [list(tensors[n * count : (n + 1) * count]) for n in range(len(reverse))]


def _contiguous_rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _weight_gradients(
    d_nodes: Tensor, adjoint: Adjoint, kernel: Kernel, values: StepValues, sums: list[Tensor]
) -> list[Tensor]:
    """`d_nodes`: gradients that the backward kernel stored, (B, T, nodes, H)."""
    outputs = adjoint.program.outputs[len(adjoint.drive) :]
    slots = dict(zip(adjoint.matmuls, map(kernel.slot, outputs), strict=True))
    positions = d_nodes.shape[0] * d_nodes.shape[1]

    def side_by_side(products: list[int]) -> Tensor:
        return concat_slots(d_nodes, [slots[index] for index in products]).reshape(positions, -1)

    found = matrix_gradients(values.step, values.plan.products, side_by_side, values.product_input, values.weights)
    gradients = {name: found[name] if name in found else torch.zeros_like(one) for name, one in values.weights.items()}
    for (name, part), total in zip(adjoint.vectors, sums, strict=True):
        gradients[name].view(-1, values.step.size)[part] += total.sum(0).to(gradients[name].dtype)
    return list(gradients.values())


def _drive_gradient(d_nodes: Tensor, adjoint: Adjoint, kernel: Kernel, drive: Tensor) -> Tensor:
    parts = drive.shape[-1] // d_nodes.shape[-1]
    slots = dict(zip(adjoint.drive, map(kernel.slot, adjoint.program.outputs), strict=False))
    if len(slots) == parts:
        return concat_slots(d_nodes, [slots[part] for part in range(parts)]).to(drive.dtype)
    zero = torch.zeros_like(d_nodes[:, :, 0])
    found = [d_nodes[:, :, slots[part]] if part in slots else zero for part in range(parts)]
    return torch.cat(found, -1).to(drive.dtype)
