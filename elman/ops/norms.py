"""Root-mean-square norm (RMSNorm; Zhang & Sennrich, 2019): rescales each vector to a root mean square of 1."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The definition: x / sqrt(mean(x²) + eps), computed in float32 at least; `weight` is the gain."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight


class RMSNorm(nn.Module):
    """Layer norm without mean and bias. Under autocast the result is float32, like that of layer norm."""

    def __init__(self, size: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, self.weight.dtype)
        return F.rms_norm(x.to(dtype), self.weight.shape, self.weight, self.eps)
