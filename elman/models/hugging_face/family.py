"""The interface of a Hugging Face architecture: settings, and a mapping of weights in both directions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from elman.models.hugging_face.folder import ConfigReader
from elman.registry import Registry


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


class Family(ABC):
    """A bijective mapping between our settings and weights and theirs."""

    name: ClassVar[str]  # their model_type
    architecture: ClassVar[str]  # their model class
    loader: ClassVar[str] = "AutoModelForCausalLM"
    model: ClassVar[str] = "stack"  # our model type
    prefix: ClassVar[str]  # of all weight names but the head's; missing in folders of base models
    block: ClassVar[tuple[str, ...]]  # our layers that make up one of their blocks
    buffers: ClassVar[str] = r"(?!)"  # pattern of tensors that are computed or unused
    copies: ClassVar[str] = "lm_head.weight"  # name of the copy of tied embeddings, which some folders store
    older: ClassVar[tuple[tuple[str, str], ...]] = ()  # (current, older) parts of weight names

    @abstractmethod
    def settings(self, reader: ConfigReader) -> dict[str, Any]:
        """All settings of our model, from their config.json."""

    @abstractmethod
    def describe(self, model: Any) -> dict[str, Any]:
        """Their config.json for our model; reading it back with `settings` shows what cannot be expressed."""

    @abstractmethod
    def rows(self, model: Any) -> Iterator[WeightMapping]:
        """The mapping of every weight of our model."""


FAMILIES: Registry[Family] = Registry("Hugging Face architecture")
