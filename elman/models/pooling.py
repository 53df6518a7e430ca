"""Pooling over time: last, mean, max or attention.

All but max are weighted means: the weight of a position is its score divided by the sum of scores. So the running form
over prefixes uses the same scores with cumulative sums.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from elman.layers.base import at_least_float32
from elman.ops.taps import stepping, tap
from elman.shapes import Sequence

PoolingType = Literal["last", "mean", "max", "attention"]


class Pooling(nn.Module):
    """`forward` gives (batch, width), `running` (batch, time, width); a text without tokens gives zeros."""

    def __init__(self, kind: PoolingType, width: int):
        super().__init__()
        self.kind = kind
        score = (nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1, bias=False)) if kind == "attention" else ()
        self.to_score = nn.Sequential(*score)

    def forward(self, x: Sequence, real: Tensor) -> Tensor:
        x = _masked(x, real)
        if self.kind == "max":
            pooled = x.masked_fill(~real.unsqueeze(-1), -torch.inf).amax(1) if x.shape[1] else x.sum(1)
            pooled = pooled.masked_fill(~real.any(1, keepdim=True), 0.0)
        else:
            shares = self._shares(x, real)
            weights = tap("pooling.weights", shares / shares.sum(1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny))
            pooled = (weights.unsqueeze(1) @ x).squeeze(1)
        with stepping():  # the whole text is one step
            return tap("pooling.vector", pooled)

    def running(self, x: Sequence, real: Tensor) -> Sequence:
        """The pooled vector of each prefix; finite but undefined at padding."""
        x = _masked(x, real)
        if self.kind == "last":
            pooled = x
        elif self.kind == "max":
            pooled = x.cummax(1).values
        else:
            shares = self._shares(x, real).unsqueeze(-1)
            pooled = (shares * x).cumsum(1) / shares.cumsum(1).clamp(min=torch.finfo(x.dtype).tiny)
        return tap("pooling.vector", pooled)

    def _shares(self, x: Sequence, real: Tensor) -> Tensor:
        """Unnormalized weights (batch, time)."""
        if self.kind == "last":
            places = torch.arange(real.shape[1], device=real.device)
            return ((places == real.sum(1, keepdim=True) - 1) & real).to(x.dtype)
        if self.kind == "mean":
            return real.to(x.dtype)
        scores = self.to_score(x).squeeze(-1).to(x.dtype).masked_fill(~real, -torch.inf)
        largest = scores.amax(1, keepdim=True) if scores.shape[1] else scores.new_zeros(len(x), 1)
        return (scores - largest.detach().clamp(min=torch.finfo(x.dtype).min)).exp()


def _masked(x: Sequence, real: Tensor) -> Sequence:
    """Real positions in at least float32, zeros at padding, whose contents are undefined."""
    return at_least_float32(x).masked_fill(~real.unsqueeze(-1), 0.0)
