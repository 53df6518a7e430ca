"""The selective scan on a GPU: what the kernels of `fused.py` are given, and the sums that remain after them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.ops.scan.reference import common
from elman.ops.selective.chunked import Selection
from elman.shapes import Sequence


class Plan(NamedTuple):
    """How a walk is laid out; none of it changes the result."""

    steps: int = 32  # of time, scanned at once
    block: int = 32  # channels of a program
    warps: int = 4


PLAN = Plan()


def run(
    x: Sequence, chosen: Selection, rate: Tensor, initial: Tensor, skip: Tensor | None, gate: Sequence | None
) -> tuple[Sequence, Tensor]:
    """Equal to the reference in values and gradients, computed in float32 at least; no states are kept."""
    return _Fused.apply(x, *chosen, rate, initial, skip, gate)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, delta, write, read, rate, initial, skip, gate):  # type: ignore[no-untyped-def]
        batch, time, channels = x.shape
        kind, stretches = common(x, delta, write, read, rate, initial), -(-time // PLAN.steps)
        x, delta, write, read = (part.contiguous() for part in (x, delta, write, read))
        rates = rate.t().to(kind).contiguous()
        starts = torch.empty(batch, stretches + 1, rate.shape[1], channels, dtype=kind, device=x.device)
        starts[:, 0] = initial.transpose(1, 2)
        outputs = torch.empty(x.shape, dtype=kind, device=x.device)
        given = [x, delta, write, read, rates, skip, _rows(gate), starts]
        _launch("forward", given, outputs)
        ctx.save_for_backward(*given)
        ctx.kinds = rate.dtype, initial.dtype
        return outputs, starts[:, -1].transpose(1, 2).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, for_outputs, for_final):  # type: ignore[no-untyped-def]
        given = ctx.saved_tensors
        x, delta, write, read, rates, skip, gate, starts = given
        batch, _, channels = x.shape
        blocks = -(-channels // PLAN.block)
        future = for_final.transpose(1, 2).to(starts.dtype).contiguous()
        for_write, for_read = (future.new_empty(blocks, *part.shape) for part in (write, read))
        for_rate = torch.zeros_like(future)
        for_skip = None if skip is None else future.new_empty(batch, channels)
        for_gate = None if gate is None else torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        for_x, for_delta = torch.empty_like(x), torch.empty_like(delta)
        made = [for_x, for_delta, for_write, for_read, for_rate, for_skip, for_gate]
        _launch("backward", given, for_outputs.contiguous(), future, *made, batch=batch)
        rate_kind, initial_kind = ctx.kinds
        for_initial = future * (delta[:, :1].to(future.dtype) * rates).exp()
        return (
            for_x,
            for_delta,
            for_write.sum(0).to(write.dtype),
            for_read.sum(0).to(read.dtype),
            for_rate.sum(0).t().to(rate_kind),
            for_initial.transpose(1, 2).to(initial_kind),
            None if for_skip is None else for_skip.sum(0).to(skip.dtype),
            for_gate,
        )


def _rows(gate: Tensor | None) -> Tensor | None:
    """As it is where its rows are equally far apart, as those of one half of a product are; else a copy."""
    if gate is None or (gate.stride(2) == 1 and gate.stride(0) == gate.shape[1] * gate.stride(1)):
        return gate
    return gate.contiguous()


def _launch(name: str, given: Any, *rest: Tensor | None, **sizes: int) -> None:
    from elman.ops.selective import fused

    x, gate, starts = given[0], given[6], given[7]
    batch, time, channels = x.shape
    with torch.cuda.device_of(x):
        getattr(fused, name)[(batch * -(-channels // PLAN.block),)](
            *given,
            *rest,
            time=time,
            channels=channels,
            size=starts.shape[2],
            stretches=starts.shape[1] - 1,
            gate_time=channels if gate is None else gate.stride(1),
            STEPS=PLAN.steps,
            BLOCK=PLAN.block,
            num_warps=PLAN.warps,
            **sizes,
        )
