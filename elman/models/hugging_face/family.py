"""What an architecture of theirs must tell, to be read and written."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from elman.models.hugging_face.config_reader import Given
from elman.models.hugging_face.weight_map import Row
from elman.registry import Registry


class Family(ABC):
    """A pure mapping in both directions, without a place for anything that only one side can say."""

    name: ClassVar[str]  # their model_type
    architecture: ClassVar[str]  # their class
    loader: ClassVar[str] = "AutoModelForCausalLM"
    model: ClassVar[str] = "stack"  # our kind of model
    prefix: ClassVar[str]  # of all names but the head's; folders of the bare network lack it
    block: ClassVar[tuple[str, ...]]  # our layers that one of theirs is made of
    buffers: ClassVar[str] = r"(?!)"  # tensors that are computed, not learned, or play no part in the prediction
    copies: ClassVar[str] = "lm_head.weight"  # of the word vectors, where these are tied; some folders store it
    older: ClassVar[tuple[tuple[str, str], ...]] = ()  # parts of names, and what they were called before

    @abstractmethod
    def settings(self, given: Given) -> dict[str, Any]:
        """Settings of our model, all of them spelled out, from their config.json."""

    @abstractmethod
    def describe(self, model: Any) -> dict[str, Any]:
        """Their config.json, as near to our model as it can be; `settings` of it shows what was lost."""

    @abstractmethod
    def rows(self, model: Any) -> Iterator[Row]:
        """Every weight of our model."""


FAMILIES: Registry[Family] = Registry("Hugging Face architecture")
