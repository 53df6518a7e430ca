"""The labels of lines of text, and a text as a classifier reads it."""

from typing import TYPE_CHECKING, Any

from elman.inspection.inspected_text import InspectedText, inspect_classifier
from elman.pipeline.tasks.classify.data import ClassifyData
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.texts import TextInspection, TextPrediction

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

THRESHOLD = 0.5  # of a label's probability, where a text can have several labels


class ClassifyPrediction(TextPrediction):
    data: ClassifyData

    def run(self, model: Any, batch: Any) -> Any:
        return model.probabilities(batch)

    def answer(self, output: Any, probabilities: bool) -> Settings:
        names = self.data.labels.names
        if self.data.labels.several:
            above = [name for name, chance in zip(names, output, strict=True) if chance > THRESHOLD]
            answer: Settings = {"labels": above}
        else:
            best = int(output.argmax())
            answer = {"label": names[best], "probability": float(output[best])}
        if probabilities:
            answer["probabilities"] = dict(zip(names, map(float, output), strict=True))
        return answer

    def format(self, answer: Settings) -> str:
        parts = self.data.answer_parts(answer)
        if "probabilities" in answer:
            parts += [f"{name}={chance:.4f}" for name, chance in answer["probabilities"].items()]
        return "\t".join([*parts, answer["text"]])


class ClassifyInspection(TextInspection):
    data: ClassifyData

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        return inspect_classifier(model, *self.tokens(text), self.data.labels.names)
