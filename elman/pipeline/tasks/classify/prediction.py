"""The labels of lines of text."""

from typing import Any

from elman.pipeline.tasks.classify.data import ClassifyData
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.texts import TextPrediction

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
