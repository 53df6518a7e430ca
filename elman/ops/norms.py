"""Root-mean-square norm (Zhang & Sennrich, 2019): each vector is brought to one length, its direction kept."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The definition: x / sqrt(mean(x²) + eps), each unit with its own gain; in float32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight


class RMSNorm(nn.Module):
    """As layer norm without mean and bias. Under autocast the result is float32, like that of layer norm."""

    def __init__(self, size: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        kind = torch.promote_types(x.dtype, self.weight.dtype)
        return F.rms_norm(x.to(kind), self.weight.shape, self.weight, self.eps)
