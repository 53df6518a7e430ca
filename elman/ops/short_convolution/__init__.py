"""Short depthwise convolution of state space layers: each channel over its last `kernel_size` inputs.

    y_t = bias + Σ_k weight_k · seen_{t+k},   k < kernel_size

Libraries compute it as a grouped convolution, which needs time as the last axis and is slow.
"""

from torch import Tensor

from elman.ops.forms import Form, Forms, never
from elman.ops.scan import unwatched
from elman.ops.scan.kernel import obstacle
from elman.ops.short_convolution import kernel, shifted
from elman.shapes import Sequence

__all__ = ["FORMS", "choose", "explain", "short_convolution"]

FORMS = Forms(
    "the short convolution",
    {
        "kernel": Form(kernel.run, obstacle, never, lambda seen: "Triton, all taps in one pass", "cuda"),
        "shifted": Form(shifted.run, unwatched, never, lambda seen: "shifted multiply-adds in torch"),
        "reference": Form(shifted.reference, never, never, lambda seen: "torch's convolution"),
    },
)
choose, explain = FORMS.choose, FORMS.explain


def short_convolution(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """Outputs (batch, time, channels) of `seen` (batch, kernel_size - 1 + time, channels), earlier inputs first.

    `weight` (channels, 1, kernel_size) is that of an nn.Conv1d; accumulated in float32 at least.
    """
    return FORMS[FORMS.taken(seen)].run(seen, weight, bias)
