"""The labels of lines of text."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from elman.evaluation.inference_mode import inference_mode
from elman.pipeline.tasks.classify.data import ClassifyData
from elman.pipeline.tasks.examples import ExamplePrediction, chunks, length_batches
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.settings import Settings

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

THRESHOLD = 0.5  # of a label's probability, where a text can have several labels


class ClassifyPrediction(ExamplePrediction):
    data: ClassifyData

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        for texts in chunks(numbered(lines, lambda line: text_of(line, "text"))):
            rows = [{"text": np.asarray(ids)} for ids in self.data.tokenizer.encode_batch(texts)]
            self.count_long_lines(model, rows)
            found = np.zeros((len(rows), len(self.data.labels)))
            with inference_mode(model):
                for indices, batch in length_batches(rows, "text", recipe.evaluation.batch_size, model):
                    found[indices] = model.probabilities(batch).cpu().numpy()
            for text, chances in zip(texts, found, strict=True):
                yield {"text": text} | self._answer(chances, probabilities)

    def _answer(self, chances: Any, probabilities: bool) -> Settings:
        names = self.data.labels.names
        if self.data.labels.several:
            above = [name for name, chance in zip(names, chances, strict=True) if chance > THRESHOLD]
            answer: Settings = {"labels": above}
        else:
            best = int(chances.argmax())
            answer = {"label": names[best], "probability": float(chances[best])}
        if probabilities:
            answer["probabilities"] = dict(zip(names, map(float, chances), strict=True))
        return answer

    def format(self, answer: Settings) -> str:
        parts = self.data.answer_parts(answer)
        if "probabilities" in answer:
            parts += [f"{name}={chance:.4f}" for name, chance in answer["probabilities"].items()]
        return "\t".join([*parts, answer["text"]])
