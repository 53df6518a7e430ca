"""The number of lines of text, and a text as a regressor reads it."""

from typing import TYPE_CHECKING, Any

from elman.inspection.inspected_text import InspectedText, inspect_text_reader
from elman.pipeline.tasks.regress.data import RegressData
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.texts import TextInspection, TextPrediction

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class RegressPrediction(TextPrediction):
    data: RegressData

    def run(self, model: Any, batch: Any) -> Any:
        return model.logits(batch.ragged("text"))[:, 0]

    def answer(self, output: Any, probabilities: bool) -> Settings:
        """A number has no probability: that option has no effect."""
        return {"number": float(self.data.target.in_unit(output))}

    def format(self, answer: Settings) -> str:
        return f"{answer['number']:.6g}\t{answer['text']}"


class RegressInspection(TextInspection):
    data: RegressData

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        ids, tokens = self.tokens(text)
        return inspect_text_reader(model, ids, tokens, lambda _: "the number", goal="value", scores=model.in_unit)
