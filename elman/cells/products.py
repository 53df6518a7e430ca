"""The two matrix products of a cell: from the input (all of time at once) and from the past (one step at a time)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PastProduct(nn.Linear):
    """The recurrent matrix: `parts` square blocks without bias, of which weights can be left out for one sequence."""

    def __init__(self, size: int, parts: int):
        super().__init__(size, parts * size, bias=False)
        self.thinned: Tensor | None = None

    @property
    def weight_in_use(self) -> Tensor:
        """What every form of the recurrence reads, so that all of them drop the same weights."""
        return self.weight if self.thinned is None else self.thinned

    def forward(self, past: Tensor) -> Tensor:
        return F.linear(past.to(self.weight.dtype), self.weight_in_use)

    @contextmanager
    def dropping(self, share: float) -> Iterator[None]:
        """Inside, a `share` of the weights is zero and the rest is scaled up to make good for it."""
        self.thinned = F.dropout(self.weight, share)
        try:
            yield
        finally:
            self.thinned = None


class Antisymmetric(PastProduct):
    """A square recurrent matrix M - Mᵀ - damping·I: it turns the state and takes of it, and never feeds its growth."""

    def __init__(self, size: int, damping: float):
        super().__init__(size, parts=1)
        self.damping = damping

    def forward(self, past: Tensor) -> Tensor:
        past = past.to(self.weight.dtype)
        return F.linear(past, self.weight_in_use) - past @ self.weight_in_use - self.damping * past


@torch.no_grad()
def start(cell: nn.Module, size: int, orthogonal: bool) -> None:
    """Initial values: uniform within 1/sqrt(size) as torch has it, and square orthogonal blocks if asked."""
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)
    if orthogonal:
        for module in cell.modules():
            if isinstance(module, PastProduct):
                for block in module.weight.split(size):
                    nn.init.orthogonal_(block)
