"""Layer norm (Ba et al., 2016): y = (x - mean(x)) / sqrt(variance(x) + eps) · weight + bias.

The Triton kernel takes one pass forward and one backward. Libraries take two or three passes backward, and copy
gradients with strided rows, such as those of a recurrence's drive.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.ops.forms import Form, Forms, never
from elman.ops.layer_norm import kernel

__all__ = ["FORMS", "LayerNorm", "choose", "explain", "layer_norm"]


def reference(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def _title(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> str:
    return "Triton, one program per vector"


FORMS = Forms(
    "layer norm",
    {
        "kernel": Form(kernel.run, kernel.obstacle, never, _title, "cuda"),
        "reference": Form(reference, never, never, lambda *args: "torch's layer norm"),
    },
)
choose, explain = FORMS.choose, FORMS.explain


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Over the last axis, with statistics in float32 at least."""
    args = x, weight, bias, eps
    return FORMS[FORMS.taken(*args)].run(*args)


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm by the fastest form. Double backward is not supported."""

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.weight, torch.Tensor)
        return layer_norm(x, self.weight, self.bias, self.eps)
