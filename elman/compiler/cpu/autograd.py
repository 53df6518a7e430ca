"""A compiled sequence as one autograd node: the input projection, the kernel through time, and all gradients.

Gradients of the input and of all matrices are GEMMs over all rows and steps, after backward has run through time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.compiler.cpu.memory_layout import SequencePlan
from elman.compiler.cpu.runtime import ACCUMULATE, OVERWRITE, Descriptor, is_small, linear, run_gemms

Gradients = list[Tensor | None]
Matrix = tuple[Tensor, int, int]  # in the memory of a tensor: its first element there, and the stride of its rows


class CompiledRecurrence(torch.autograd.Function):
    """Arguments: (plan, grad mode, lengths, chosen); x, weight and bias of the input projection (or the drive, None,
    None); the parts of the state; the weights by the plan's names.

    With `chosen` (batch, time), x is a table (1, rows, width), and these are the rows that are read; without gradients.
    """

    @staticmethod
    def forward(ctx: Any, settings: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Tensor) -> Any:
        plan, grad_mode, lengths, chosen = settings
        size, dtype, saving = plan.step.size, plan.dtype, grad_mode and any(ctx.needs_input_grad)
        drive = _unit_stride(x if weight is None else linear(x, _contiguous(weight, dtype), bias), dtype)
        (batch, time), width = drive.shape[:2] if chosen is None else chosen.shape, drive.shape[2]
        count = len(plan.step.next_state)
        weights = [_contiguous(one, dtype) for one in rest[count:]]
        initial = [_unit_stride(part, dtype) for part in rest[:count]]
        outputs = drive.new_empty(batch, time, size)
        saved = drive.new_empty(batch, time if saving else 1, plan.record)
        final = [drive.new_empty(batch, size) for _ in initial]
        inputs = drive if chosen is None else drive[0]
        descriptors = [_descriptor(one) for one in (*weights, *initial, *final, inputs, outputs, saved)]
        if saving:
            ctx.plan, ctx.lengths, ctx.width = plan, lengths, width
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(saved, x if weight is not None else None, weight, *rest[count:])
        else:  # a step stride of 0: each step overwrites the last
            descriptors[-1] = saved.data_ptr(), saved.stride(0), 0
        plan.kernels[0](batch, time, descriptors, lengths, chosen)
        return outputs, *final

    @staticmethod
    def backward(ctx: Any, *adjoints: Tensor) -> Any:
        # only double backward pays for once_differentiable, which raises its error
        return (once_differentiable(_backward) if torch.is_grad_enabled() else _backward)(ctx, *adjoints)


def _backward(ctx: Any, d_output: Tensor | None, *d_final: Tensor | None) -> Any:
    plan, dtype, count = ctx.plan, ctx.plan.dtype, len(d_final)
    saved, x, weight, *weights = ctx.saved_tensors
    batch, time, _ = saved.shape
    weights = [_contiguous(one, dtype) for one in weights]
    d_outputs = [one if one is None else _unit_stride(one, dtype) for one in (*d_final, d_output)]
    d_initial = [saved.new_empty(batch, plan.step.size) for _ in d_final]
    adjoints = saved.new_empty(batch, time, plan.d_drive + ctx.width)
    sums = saved.new_empty(batch, plan.accumulated) if plan.accumulated else None
    size = plan.step.size
    unread = {*range(ctx.width // size)} - {*plan.adjoint.drive}  # parts of the drive that the step does not read
    for part in unread:
        adjoints.narrow(2, plan.d_drive + part * size, size).zero_()
    zeros = plan.zeros.data_ptr(), 0, 0
    tensors = *weights, *d_outputs[:-1], *d_initial, adjoints, d_outputs[-1], saved, sums
    descriptors = [zeros if one is None else _descriptor(one) for one in tensors]
    plan.kernels[1](batch, time, descriptors, ctx.lengths, reverse=True)
    projection = None if x is None or weight is None else (x, _contiguous(weight, dtype))
    needed = *ctx.needs_input_grad[1:4], *ctx.needs_input_grad[4 + count :]
    of_input, of_weights = _matrix_gradients(plan, saved, adjoints, projection, weights, needed)
    if sums is not None:
        _add_vector_gradients(plan, sums, weights, needed[3:], of_weights)
    of_state = (one if need else None for one, need in zip(d_initial, ctx.needs_input_grad[4:], strict=False))
    return None, *of_input, *of_state, *of_weights


def _matrix_gradients(
    plan: SequencePlan,
    saved: Tensor,
    adjoints: Tensor,
    projection: tuple[Tensor, Tensor] | None,
    weights: list[Tensor],
    needed: tuple[bool, ...],
) -> tuple[Gradients, Gradients]:
    """Of x, weight and bias of its projection (without a `projection`: of the drive), and of the matrices in `weights`.

    From what forward `saved` of each step and the `adjoints` that backward wrote for it (B, T, record).
    """
    (batch, time, record), size = adjoints.shape, plan.step.size
    rows, width = batch * time, record - plan.d_drive
    # small ones skip torch, whose call overhead would exceed the arithmetic
    small = projection is not None and is_small(projection[0], rows, max(projection[0].shape[2], size), width)
    jobs: list[int] = []  # small products, run at the end as one batch

    def multiply(
        y: Matrix, a: Matrix, b: Matrix, sizes: tuple[int, int, int], transposed: bool = True, mode: int = OVERWRITE
    ) -> None:
        """y = aᵀ @ b, or a @ b, or y += that. `sizes`: rows of y, the inner size, columns of y."""
        (height, inner, columns), a_strides = sizes, (1, a[2]) if transposed else (a[2], 1)
        if small:
            y_at, a_at, b_at = (one.data_ptr() + start * one.element_size() for one, start, _ in (y, a, b))
            jobs.extend((a_at, *a_strides, height, b_at, b[2], 1, columns, inner, y_at, y[2], mode))
            return
        shapes = ((height, columns), (y[2], 1)), ((height, inner), a_strides), ((inner, columns), (b[2], 1))
        own, left, right = (
            one.as_strided(*shape, one.storage_offset() + start)
            for (one, start, _), shape in zip((y, a, b), shapes, strict=True)
        )
        own.addmm_(left, right, beta=mode)

    of_input: Gradients = [None, None, None]
    if projection is None:
        of_input[0] = adjoints.narrow(2, plan.d_drive, width)
    else:
        x, weight = projection[0].contiguous(), projection[1]
        d_drive, inputs = (adjoints, plan.d_drive, record), x.shape[2]
        if needed[0]:
            of_input[0] = d_x = torch.empty_like(x)
            multiply((d_x, 0, inputs), d_drive, (weight, 0, inputs), (rows, width, inputs), transposed=False)
        if needed[1]:
            of_input[1] = d_weight = torch.empty_like(weight)
            multiply((d_weight, 0, inputs), d_drive, (x, 0, inputs), (width, rows, inputs))
        if needed[2] and small:
            of_input[2] = d_bias = x.new_empty(width)
            start = adjoints.data_ptr() + plan.d_drive * x.element_size()
            jobs += 0, 0, 0, 1, start, record, 1, width, rows, d_bias.data_ptr(), width, OVERWRITE
        elif needed[2]:
            of_input[2] = adjoints.view(rows, record).narrow(1, plan.d_drive, width).sum(0)
    of_weights: Gradients = [None] * len(weights)
    for n, row, column, count, flipped, adjoint_start, value_start in plan.matrix_gradients:
        if not needed[3 + n]:
            continue
        gradient, mode = of_weights[n], ACCUMULATE
        if gradient is None:
            whole = weights[n].numel() == count * size**2
            of_weights[n] = gradient = (torch.empty_like if whole else torch.zeros_like)(weights[n])
            mode = OVERWRITE if whole else ACCUMULATE
        stride = gradient.shape[1]
        target = gradient, (row * stride + column) * size, stride
        adjoint, value = (adjoints, adjoint_start, record), (saved, value_start, plan.record)
        if flipped:
            multiply(target, value, adjoint, (size, rows, size), mode=mode)
        else:
            multiply(target, adjoint, value, (count * size, rows, size), mode=mode)
    if jobs:
        run_gemms(jobs, plan.dtype)
    return of_input, of_weights


def _add_vector_gradients(
    plan: SequencePlan, sums: Tensor, weights: list[Tensor], needed: tuple[bool, ...], gradients: Gradients
) -> None:
    """Adds the gradients of vectors, which backward accumulated for each row (B, vectors · H)."""
    total = sums.sum(0)
    for one in plan.vector_gradients:
        if needed[one.parameter]:
            weight = weights[one.parameter]
            gradient = total.narrow(0, one.start, len(one.parts) * plan.step.size)
            if gradient.numel() < weight.numel():  # the step reads only some vectors of the parameter
                all_parts = total.new_zeros(weight.numel()).view(-1, plan.step.size)
                gradient = all_parts.index_copy_(0, torch.tensor(one.parts), gradient.view(-1, plan.step.size))
            gradient, before = gradient.view(weight.shape), gradients[one.parameter]
            gradients[one.parameter] = gradient if before is None else before + gradient


def _descriptor(tensor: Tensor) -> Descriptor:
    """The stride of steps is 0 without a time axis."""
    strides = tensor.stride()
    return tensor.data_ptr(), strides[0], strides[1] if len(strides) == 3 else 0


def _unit_stride(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """In this dtype, with a last axis of stride 1."""
    tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _contiguous(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return (tensor if tensor.dtype == dtype else tensor.to(dtype)).contiguous()
