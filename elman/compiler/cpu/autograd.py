"""A compiled sequence as one autograd node: the input projection, the kernel through time, and all gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.compiler.cpu.memory_layout import SequencePlan
from elman.compiler.cpu.small_matmul import linear
from elman.compiler.cpu.weight_gradients import Gradients, WeightGradients


class CompiledRecurrence(torch.autograd.Function):
    """Arguments: (plan, grad mode, lengths); x, weight and bias of the input projection (or the drive, None, None); the
    parts of the state; the weights by the plan's names."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: tuple[SequencePlan, bool, Tensor | None],
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        *rest: Tensor,
    ) -> Any:
        plan, grad_mode, lengths = settings
        size, dtype, saving = plan.step.size, plan.dtype, grad_mode and any(ctx.needs_input_grad)
        drive = _unit_stride(x if weight is None else linear(x, _contiguous(weight, dtype), bias), dtype)
        batch, time, width = drive.shape
        count = len(plan.step.next_state)
        weights = [_contiguous(one, dtype) for one in rest[count:]]
        initial = [_unit_stride(part, dtype) for part in rest[:count]]
        outputs = drive.new_empty(batch, time, size)
        saved = drive.new_empty(batch, time if saving else 1, plan.record)
        final = [drive.new_empty(batch, size) for _ in initial]
        descriptors = [_descriptor(one) for one in (*weights, *initial, *final, drive, outputs, saved)]
        if saving:
            ctx.plan, ctx.lengths, ctx.width = plan, lengths, width
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(saved, x if weight is not None else None, weight, *rest[count:])
        else:  # a step stride of 0: each step overwrites the last
            descriptors[-1] = saved.data_ptr(), saved.stride(0), 0
        plan.kernels[0](batch, time, descriptors, lengths)
        return outputs, *final

    @staticmethod
    def backward(ctx: Any, *adjoints: Tensor) -> Any:
        # only double backward pays for once_differentiable, which raises its error
        return (once_differentiable(_backward) if torch.is_grad_enabled() else _backward)(ctx, *adjoints)


def _backward(ctx: Any, d_output: Tensor | None, *d_final: Tensor | None) -> Any:
    plan, dtype, needed, count = ctx.plan, ctx.plan.dtype, ctx.needs_input_grad, len(d_final)
    saved, x, weight, *weights = ctx.saved_tensors
    batch, time, _ = saved.shape
    weights = [_contiguous(one, dtype) for one in weights]
    d_outputs = [one if one is None else _unit_stride(one, dtype) for one in (*d_final, d_output)]
    d_initial = [saved.new_empty(batch, plan.step.size) for _ in d_final]
    adjoints = saved.new_empty(batch, time, plan.d_drive + ctx.width)
    sums = saved.new_empty(batch, plan.accumulated) if plan.accumulated else None
    _zero_unused(adjoints, plan, ctx.width)
    zeros = plan.zeros.data_ptr(), 0, 0
    tensors = *weights, *d_outputs[:-1], *d_initial, adjoints, d_outputs[-1], saved, sums
    descriptors = [zeros if one is None else _descriptor(one) for one in tensors]
    plan.kernels[1](batch, time, descriptors, ctx.lengths, reverse=True)
    gradients, weights_needed = WeightGradients(plan, saved, adjoints), needed[4 + count :]
    if x is None or weight is None:
        of_input: Gradients = [adjoints.narrow(2, plan.d_drive, ctx.width), None, None]
        of_weights = gradients.of_weights(weights, weights_needed)
    else:
        needed_here = *needed[1:4], *weights_needed
        of_input, of_weights = gradients.of_all(x, _contiguous(weight, dtype), weights, needed_here)
    if sums is not None:
        _add_vector_gradients(plan, sums, weights, weights_needed, of_weights)
    of_state = (one if need else None for one, need in zip(d_initial, needed[4:], strict=False))
    return None, *of_input, *of_state, *of_weights


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


def _zero_unused(adjoints: Tensor, plan: SequencePlan, width: int) -> None:
    """Zeroes the adjoints of parts of the drive that the step does not read."""
    size, used = plan.step.size, plan.adjoint.drive
    if len(used) * size < width:
        for part in set(range(width // size)) - set(used):
            adjoints.narrow(2, plan.d_drive + part * size, size).zero_()


def _descriptor(tensor: Tensor) -> tuple[int, int, int]:
    """Address, row stride and step stride (0 without a time axis)."""
    strides = tensor.stride()
    return tensor.data_ptr(), strides[0], strides[1] if len(strides) == 3 else 0


def _unit_stride(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """In this dtype, with a last axis of stride 1."""
    tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _contiguous(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return (tensor if tensor.dtype == dtype else tensor.to(dtype)).contiguous()
