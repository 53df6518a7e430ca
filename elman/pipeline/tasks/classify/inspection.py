"""A text as a classifier reads it."""

from typing import TYPE_CHECKING, Any

from elman.errors import ConfigError
from elman.inspection.inspected_text import InspectedText, inspect_classifier
from elman.pipeline.tasks.base import Inspection
from elman.pipeline.tasks.classify.data import ClassifyData

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class ClassifyInspection(Inspection):
    data: ClassifyData

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        tokenizer = self.data.tokenizer
        ids = tokenizer.encode(text).tolist()
        if not ids:
            raise ConfigError(f"{text!r}: has no token to look at")
        return inspect_classifier(model, ids, [tokenizer.token(id) for id in ids], self.data.labels.names)
