"""The recurrent matrix products of cells, with weight dropout."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PastProduct(nn.Linear):
    """The recurrent matrix: `parts` square blocks without bias, with weight dropout per sequence."""

    def __init__(self, size: int, parts: int):
        super().__init__(size, parts * size, bias=False)
        self.thinned: Tensor | None = None

    @property
    def weight_in_use(self) -> Tensor:
        """The weight read by every form of the recurrence, so that all drop the same weights."""
        return self.weight if self.thinned is None else self.thinned

    def forward(self, past: Tensor) -> Tensor:
        return F.linear(past.to(self.weight.dtype), self.weight_in_use)

    @contextmanager
    def dropping(self, share: float) -> Iterator[None]:
        """Context in which a `share` of the weights is zero and the rest is scaled up."""
        self.thinned = F.dropout(self.weight, share)
        try:
            yield
        finally:
            self.thinned = None


class Antisymmetric(PastProduct):
    """A square recurrent matrix M - Mᵀ - damping·I: rotates and damps the state, and cannot make it grow."""

    def __init__(self, size: int, damping: float):
        super().__init__(size, parts=1)
        self.damping = damping

    def forward(self, past: Tensor) -> Tensor:
        past = past.to(self.weight.dtype)
        return F.linear(past, self.weight_in_use) - past @ self.weight_in_use - self.damping * past


@torch.no_grad()
def start(cell: nn.Module, size: int, orthogonal: bool) -> None:
    """Initialization: uniform within 1/sqrt(size) as in torch, optionally orthogonal square blocks."""
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)
    if orthogonal:
        for module in cell.modules():
            if isinstance(module, PastProduct):
                for block in module.weight.split(size):
                    nn.init.orthogonal_(block)
