"""Short depthwise convolution of state space layers: each channel over its last `kernel_size` inputs.

    y_t = bias + Σ_k weight_k · seen_{t+k},   k < kernel_size

Libraries compute it as a grouped convolution, which needs time as the last axis and is slow.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.ops.forms import Form, Forms
from elman.ops.scan.chunked import common_dtype
from elman.ops.scan.kernel import obstacle
from elman.ops.short_convolution import kernel
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


FORMS = Forms(
    "the short convolution",
    {
        "kernel": Form(kernel.run, "Triton, all taps in one pass", obstacle, device="cuda"),
        "shifted": Form(shifted, "shifted multiply-adds in torch"),
        "reference": Form(reference, "torch's convolution"),
    },
)
choose, explain = FORMS.choose, FORMS.explain


def short_convolution(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """Outputs (batch, time, channels) of `seen` (batch, kernel_size - 1 + time, channels), earlier inputs first.

    `weight` (channels, 1, kernel_size) is that of an nn.Conv1d; accumulated in float32 at least.
    """
    return FORMS[FORMS.taken(seen)].run(seen, weight, bias)
