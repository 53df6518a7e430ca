"""A sentence as a tagger reads it."""

from typing import TYPE_CHECKING, Any

from elman.batches import together
from elman.corpus import Tagged
from elman.errors import ConfigError
from elman.evaluation.inference_mode import device_of
from elman.inspection.inspected_text import InspectedText
from elman.pipeline.tasks.base import Inspection
from elman.pipeline.tasks.tag.data import TagData
from elman.pipeline.tasks.tag.prediction import words_of

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class TagInspection(Inspection):
    data: TagData

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        words = words_of(text)
        if not words:
            raise ConfigError(f"{text!r}: has no word to look at")
        row = self.data.table.encode(Tagged(tuple(words)))

        def run(copies: int, pads: int = 0) -> Any:
            return model(together([row] * copies).padded(pads).to(device_of(model)))

        return InspectedText(model, run, {"": words}, "tag", self.data.tags.names.__getitem__)
