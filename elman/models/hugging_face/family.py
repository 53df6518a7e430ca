"""What an architecture of theirs must tell, to be read and written."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from elman.models.hugging_face.given import Given
from elman.models.hugging_face.rows import Row
from elman.registry import Registry


class Family(ABC):
    """A pure mapping in both directions, without a place for anything that only one side can say."""

    name: ClassVar[str]  # their model_type
    architecture: ClassVar[str]  # their class
    loader: ClassVar[str] = "AutoModelForCausalLM"
    model: ClassVar[str] = "stack"  # our kind of model
    prefix: ClassVar[str]  # of all names but the head's; folders of the bare network lack it
    block: ClassVar[tuple[str, ...]]  # our layers that one of theirs is made of
    buffers: ClassVar[str] = r"(?!)"  # tensors in older folders that are computed, not learned

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
