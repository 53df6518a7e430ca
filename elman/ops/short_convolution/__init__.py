"""Short depthwise convolution of state space layers: each channel over its last `kernel_size` inputs.

    y_t = bias + Σ_k weight_k · seen_{t+k},   k < kernel_size

Libraries compute it as a grouped convolution, which needs time as the last axis and is slow.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elman.ops.forms import Form, Forms
from elman.ops.scan.chunked import common_dtype
from elman.ops.scan.kernel import obstacle
from elman.shapes import Sequence


def reference(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """The definition: torch's depthwise convolution."""
    kind = common_dtype(seen, weight)
    given = seen.to(kind).transpose(1, 2), weight.to(kind), None if bias is None else bias.to(kind)
    with torch.autocast(seen.device.type, enabled=False):
        return F.conv1d(*given, groups=len(weight)).transpose(1, 2).to(seen.dtype)


def shifted(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """One multiply-add per tap: the reference's values and gradients."""
    return _Shifted.apply(seen, weight, bias)


class _Shifted(torch.autograd.Function):
    """With its own backward: autograd would save a copy of all inputs for each tap."""

    @staticmethod
    def forward(ctx, seen, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(seen, weight)
        ctx.bias_dtype = None if bias is None else bias.dtype
        kind, time = common_dtype(seen, weight), seen.shape[1] - weight.shape[2] + 1
        outputs = seen.new_zeros(len(seen), time, len(weight), dtype=kind)
        if bias is not None:
            outputs += bias
        for k, tap in enumerate(weight.to(kind).squeeze(1).unbind(1)):
            outputs.addcmul_(seen[:, k : k + time], tap)
        return outputs.to(seen.dtype)

    @staticmethod
    def backward(ctx, given):  # type: ignore[no-untyped-def]
        seen, weight = ctx.saved_tensors
        kind, time = common_dtype(seen, weight), given.shape[1]
        for_seen, for_weight = seen.new_zeros(seen.shape, dtype=kind), []
        for k, tap in enumerate(weight.to(kind).squeeze(1).unbind(1)):
            for_seen[:, k : k + time].addcmul_(given, tap)
            for_weight.append((given.to(kind) * seen[:, k : k + time]).sum((0, 1)))
        for_bias = None if ctx.bias_dtype is None else given.sum((0, 1), dtype=kind).to(ctx.bias_dtype)
        return for_seen.to(seen.dtype), torch.stack(for_weight, 1).unsqueeze(1).to(weight.dtype), for_bias


class LaunchConfig(NamedTuple):
    """Sizes of a launch; they change nothing but the order of summation."""

    steps: int = 16
    block: int = 128  # channels of a program
    warps: int = 4
    parts: int = 64  # programs along time for the weights' gradient, each with a partial sum


PLAN = LaunchConfig()


def kernel(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """Launches the kernels of `fused.py`: the reference's values and gradients."""
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


FORMS = Forms(
    "the short convolution",
    {
        "kernel": Form(kernel, "Triton, all taps in one pass", obstacle, device="cuda"),
        "shifted": Form(shifted, "shifted multiply-adds in torch"),
        "reference": Form(reference, "torch's convolution"),
    },
)


def short_convolution(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """Outputs (batch, time, channels) of `seen` (batch, kernel_size - 1 + time, channels), earlier inputs first.

    `weight` (channels, 1, kernel_size) is that of an nn.Conv1d; accumulated in float32 at least.
    """
    return FORMS[FORMS.taken(seen)].run(seen, weight, bias)
