"""The interface of a Hugging Face architecture."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from elman.models.hugging_face.config_reader import ConfigReader
from elman.models.hugging_face.weight_map import WeightMapping
from elman.registry import Registry


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
