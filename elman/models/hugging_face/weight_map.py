"""One row for each of our weights: which of theirs it is made of, and how; the same rows serve both directions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One of ours."""

    ours: str
    theirs: tuple[str, ...]  # joined along the first axis, in this order
    sizes: tuple[int, ...] = ()  # of these parts; none: all alike
    transposed: bool = False  # theirs are stored input first

    def join(self, read: Callable[[str], Tensor]) -> Tensor:
        """Ours from theirs."""
        parts = [read(name) for name in self.theirs]
        return torch.cat([part.T if self.transposed else part for part in parts])

    def split(self, weight: Tensor) -> dict[str, Tensor]:
        """Theirs from ours."""
        parts = weight.split(self.sizes) if self.sizes else weight.chunk(len(self.theirs))
        return {
            name: (part.T if self.transposed else part).contiguous()
            for name, part in zip(self.theirs, parts, strict=True)
        }


def linear(
    ours: str, *theirs: str, bias: bool = True, sizes: tuple[int, ...] = (), transposed: bool = False
) -> Iterator[Row]:
    """Weight and bias of a layer, named without their last part."""
    yield Row(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), sizes, transposed)
    if bias:
        yield Row(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), sizes)
