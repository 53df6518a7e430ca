"""The short convolution as one multiply-add per tap, and its definition."""

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.ops.scan.reference import common_dtype
from elman.shapes import Sequence


def reference(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """The definition: torch's depthwise convolution."""
    kind = common_dtype(seen, weight)
    given = seen.to(kind).transpose(1, 2), weight.to(kind), None if bias is None else bias.to(kind)
    with torch.autocast(seen.device.type, enabled=False):
        return F.conv1d(*given, groups=len(weight)).transpose(1, 2).to(seen.dtype)


def run(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """The reference's values and gradients."""
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
