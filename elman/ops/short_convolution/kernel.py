"""The short convolution on a GPU: launches the kernels of `fused.py`, with autograd."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elman.ops.scan.chunked import common_dtype
from elman.shapes import Sequence


class LaunchConfig(NamedTuple):
    """Sizes of a launch; they change nothing but the order of summation."""

    steps: int = 16
    block: int = 128  # channels of a program
    warps: int = 4
    parts: int = 64  # programs along time for the weights' gradient, each with a partial sum


PLAN = LaunchConfig()


def run(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """The reference's values and gradients."""
    return _Fused.apply(seen.contiguous(), weight, bias)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, seen, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(seen, weight)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return _convolve(seen, weight, bias, seen.shape[1] - weight.shape[2] + 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, given):  # type: ignore[no-untyped-def]
        from elman.ops.short_convolution import fused

        seen, weight = ctx.saved_tensors
        given, plan, taps = given.contiguous(), PLAN, weight.shape[2]
        batch, time, channels = given.shape
        tiles = batch * -(-time // plan.steps)
        shape = min(plan.parts, tiles), taps + 1, channels
        sums = torch.empty(shape, dtype=common_dtype(seen, weight), device=seen.device)
        with torch.cuda.device_of(seen):
            fused.correlate[len(sums), -(-channels // plan.block)](
                seen, given, sums, batch, time, channels, taps, plan.steps, plan.block, num_warps=plan.warps
            )
        *for_taps, for_bias = sums.sum(0)
        for_weight = torch.stack(for_taps, 1).unsqueeze(1).to(weight.dtype)
        for_seen = _convolve(given, weight, None, seen.shape[1], back=True)
        return for_seen, for_weight, None if ctx.bias_dtype is None else for_bias.to(ctx.bias_dtype)


def _convolve(given: Tensor, weight: Tensor, bias: Tensor | None, time: int, back: bool = False) -> Tensor:
    import triton.language as tl

    from elman.ops.short_convolution import fused

    batch, given_time, channels = given.shape
    made, plan = given.new_empty(batch, time, channels), PLAN
    with torch.cuda.device_of(given):
        fused.convolve[batch * -(-time // plan.steps), -(-channels // plan.block)](
            *(given, weight.contiguous(), bias, made),
            *(given_time, time, channels),
            TAPS=weight.shape[2],
            BACK=back,
            STEPS=plan.steps,
            BLOCK=plan.block,
            KIND=tl.float64 if common_dtype(given, weight) == torch.float64 else tl.float32,
            num_warps=plan.warps,
        )
    return made
