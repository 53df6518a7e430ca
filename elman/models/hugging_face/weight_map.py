"""Maps each of our weights to theirs, in both directions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class WeightMapping:
    """One of our weights."""

    ours: str
    theirs: tuple[str, ...]  # concatenated along the first dimension, in this order
    sizes: tuple[int, ...] = ()  # of the parts; empty: equal
    transposed: bool = False  # theirs are (input, output)

    def join(self, read: Callable[[str], Tensor]) -> Tensor:
        """Our weight from theirs."""
        parts = [read(name) for name in self.theirs]
        return torch.cat([part.T if self.transposed else part for part in parts])

    def split(self, weight: Tensor) -> dict[str, Tensor]:
        """Their weights from ours."""
        parts = weight.split(self.sizes) if self.sizes else weight.chunk(len(self.theirs))
        return {
            name: (part.T if self.transposed else part).contiguous()
            for name, part in zip(self.theirs, parts, strict=True)
        }


def linear(
    ours: str, *theirs: str, bias: bool = True, sizes: tuple[int, ...] = (), transposed: bool = False
) -> Iterator[WeightMapping]:
    """Weight and bias of a layer, by the names of the modules."""
    yield WeightMapping(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), sizes, transposed)
    if bias:
        yield WeightMapping(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), sizes)
