"""Attention scores of a query and a key: dot product, scaled dot product, bilinear, or additive."""

from typing import Literal

import torch
from torch import Tensor, nn

ScoreKind = Literal["dot", "scaled", "bilinear", "additive"]


class Score(nn.Module):
    """q·k, q·k/√size, q·W·k (Luong et al., 2015) or v·tanh(W q + U k) (Bahdanau et al., 2015), per head."""

    def __init__(self, kind: ScoreKind, heads: int = 1, size: int = 1):
        super().__init__()
        self.kind = kind
        if kind == "bilinear":
            self.between = _weight(heads, size, size, bound=1 / size)
        if kind == "additive":
            self.from_query = _weight(heads, size, size, bound=size**-0.5)
            self.from_key = _weight(heads, size, size, bound=size**-0.5)
            self.vector = _weight(heads, size, 1, bound=size**-0.5)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """The definition: query (batch, heads, time, size) and keys (batch, kv_heads, past, size) to scores
        (batch, heads, time, past)."""
        if self.kind == "additive":
            keys = keys.repeat_interleave(query.shape[1] // keys.shape[1], 1)
            mixed = (query @ self.from_query).unsqueeze(3) + (keys @ self.from_key).unsqueeze(2)
            return (torch.tanh(mixed) @ self.vector.unsqueeze(1)).squeeze(-1)
        query, scale = self.as_product(query)
        return shared_product(query, keys.transpose(-1, -2)) * scale

    def as_product(self, query: Tensor) -> tuple[Tensor, float]:
        """A query and a scale with which the plain dot product gives these scores; not for additive ones."""
        assert self.kind != "additive"
        if self.kind == "bilinear":
            query = query @ self.between
        return query, query.shape[-1] ** -0.5 if self.kind == "scaled" else 1.0


def shared_product(left: Tensor, right: Tensor) -> Tensor:
    """Grouped matmul: each head of `right` is shared by several of `left`, without a copy."""
    batch, heads, time, _ = left.shape
    groups = left.reshape(batch, right.shape[1], -1, left.shape[-1]) if heads != right.shape[1] else left
    return (groups @ right).view(batch, heads, time, right.shape[-1])


def _weight(*shape: int, bound: float) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
