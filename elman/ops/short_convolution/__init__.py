"""The short convolution of state spaces: every channel by itself, over its last few inputs.

    y_t = bias + Σ_k weight_k · seen_{t+k},   k < kernel_size

Libraries have it as a convolution with as many groups as channels, for which they want time last and are slow.
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
        "shifted": Form(shifted.run, unwatched, never, lambda seen: "shifted products in torch"),
        "reference": Form(shifted.reference, never, never, lambda seen: "torch's convolution"),
    },
)
choose, explain = FORMS.choose, FORMS.explain


def short_convolution(seen: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence:
    """(batch, time, channels) from the inputs with those before them, `seen` (batch, kernel_size - 1 + time, channels).

    `weight` (channels, 1, kernel_size) is that of an nn.Conv1d; sums are made in float32 at least.
    """
    return FORMS[FORMS.taken(seen)].run(seen, weight, bias)
