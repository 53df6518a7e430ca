"""A whole sequence as one node of torch's graph: the input's product, the walk through time, and all gradients.

Gradients of matrices come from all steps at once, in one product each.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.compiler.cpu.memory_layout import Plan
from elman.compiler.cpu.small_matmul import linear
from elman.compiler.cpu.weight_gradients import Found, Past


class Recurrence(torch.autograd.Function):
    """Given: plan, whether a graph is made and lengths; then input, its matrix and bias (or the drive, and nothing),
    parts of the state, and weights by the plan's names."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: tuple[Plan, bool, Tensor | None],
        x: Tensor,
        matrix: Tensor | None,
        bias: Tensor | None,
        *rest: Tensor,
    ) -> Any:
        made, graph, lengths = settings
        size, kind, saving = made.step.size, made.kind, graph and any(ctx.needs_input_grad)
        drive = _rows(x if matrix is None else linear(x, _whole(matrix, kind), bias), kind)
        batch, time, width = drive.shape
        count = len(made.step.carried)
        weights = [_whole(one, kind) for one in rest[count:]]
        initial = [_rows(part, kind) for part in rest[:count]]
        outputs = drive.new_empty(batch, time, size)
        kept = drive.new_empty(batch, time if saving else 1, made.record)
        final = [drive.new_empty(batch, size) for _ in initial]
        places = [_place(one) for one in (*weights, *initial, *final, drive, outputs, kept)]
        if saving:
            ctx.made, ctx.lengths, ctx.width = made, lengths, width
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(kept, x if matrix is not None else None, matrix, *rest[count:])
        else:  # each step writes over the last
            places[-1] = kept.data_ptr(), kept.stride(0), 0
        made.walks[0](batch, time, places, lengths)
        return outputs, *final

    @staticmethod
    def backward(ctx: Any, *adjoints: Tensor) -> Any:
        # who asks for gradients of gradients hears that there are none; others need not pay for the question
        return (once_differentiable(_backward) if torch.is_grad_enabled() else _backward)(ctx, *adjoints)


def _backward(ctx: Any, d_output: Tensor | None, *d_final: Tensor | None) -> Any:
    made, kind, needed, count = ctx.made, ctx.made.kind, ctx.needs_input_grad, len(d_final)
    kept, x, matrix, *weights = ctx.saved_tensors
    batch, time, _ = kept.shape
    weights = [_whole(one, kind) for one in weights]
    given = [one if one is None else _rows(one, kind) for one in (*d_final, d_output)]
    d_initial = [kept.new_empty(batch, made.step.size) for _ in d_final]
    written = kept.new_empty(batch, time, made.d_drive + ctx.width)
    sums = kept.new_empty(batch, made.summed) if made.summed else None
    _clear_unseen(written, made, ctx.width)
    nothing = made.zeros.data_ptr(), 0, 0
    tensors = *weights, *given[:-1], *d_initial, written, given[-1], kept, sums
    made.walks[1](batch, time, [nothing if one is None else _place(one) for one in tensors], ctx.lengths, down=True)
    past, asked = Past(made, kept, written), needed[4 + count :]
    if x is None or matrix is None:
        d_input: Found = [written.narrow(2, made.d_drive, ctx.width), None, None]
        found = past.of_weights(weights, asked)
    else:
        d_input, found = past.gradients(x, _whole(matrix, kind), weights, (*needed[1:4], *asked))
    if sums is not None:
        _add_sums(made, sums, weights, asked, found)
    before = (one if need else None for one, need in zip(d_initial, needed[4:], strict=False))
    return None, *d_input, *before, *found


def _add_sums(made: Plan, sums: Tensor, weights: list[Tensor], needed: tuple[bool, ...], found: list[Any]) -> None:
    """The gradients of vectors, from what was summed for each row."""
    total = sums.sum(0)
    for one in made.sums:
        if needed[one.parameter]:
            weight = weights[one.parameter]
            gradient = total.narrow(0, one.start, len(one.parts) * made.step.size)
            if gradient.numel() < weight.numel():  # some of its vectors are not read
                all_parts = total.new_zeros(weight.numel()).view(-1, made.step.size)
                gradient = all_parts.index_copy_(0, torch.tensor(one.parts), gradient.view(-1, made.step.size))
            gradient, before = gradient.view(weight.shape), found[one.parameter]
            found[one.parameter] = gradient if before is None else before + gradient


def _clear_unseen(written: Tensor, made: Plan, width: int) -> None:
    """Parts of the drive that the step does not look at."""
    size, seen = made.step.size, made.adjoint.drive
    if len(seen) * size < width:
        for part in set(range(width // size)) - set(seen):
            written.narrow(2, made.d_drive + part * size, size).zero_()


def _place(tensor: Tensor) -> tuple[int, int, int]:
    """Its first number, and how far apart rows and steps lie, if there are such."""
    apart = tensor.stride()
    return tensor.data_ptr(), apart[0], apart[1] if len(apart) == 3 else 0


def _rows(tensor: Tensor, kind: torch.dtype) -> Tensor:
    """In this dtype, with the numbers of a row side by side."""
    tensor = tensor if tensor.dtype == kind else tensor.to(kind)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _whole(tensor: Tensor, kind: torch.dtype) -> Tensor:
    """In this dtype, all numbers in one piece."""
    return (tensor if tensor.dtype == kind else tensor.to(kind)).contiguous()
