"""A text as a classifier reads it."""

from typing import TYPE_CHECKING, Any

from elman.inspection.inspected_text import InspectedText, inspect_classifier
from elman.pipeline.tasks.classify.data import ClassifyData
from elman.pipeline.tasks.texts import TextInspection

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class ClassifyInspection(TextInspection):
    data: ClassifyData

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        return inspect_classifier(model, *self.tokens(text), self.data.labels.names)
