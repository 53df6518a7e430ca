"""The tags of the words of a line, and a sentence as a tagger reads it."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from elman.batches import collate
from elman.corpus import TaggedSentence
from elman.errors import ConfigError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.inspection.inspected_text import InspectedText
from elman.pipeline.tasks.base import Inspection
from elman.pipeline.tasks.examples import ExamplePrediction, chunks, length_batches
from elman.pipeline.tasks.lines import missing, numbered
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.tag.data import TagData

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class TagPrediction(ExamplePrediction):
    data: TagData

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        for sentences in chunks(numbered(lines, words_of)):
            rows = [self.data.table.encode(TaggedSentence(tuple(words))) for words in sentences]
            self.count_long_lines(model, rows)
            tags: list[tuple[str, ...]] = [()] * len(rows)
            chances: list[Any] = [None] * len(rows)
            with inference_mode(model):
                for indices, batch in length_batches(rows, "words", recipe.evaluation.batch_size, model):
                    for index, names in zip(indices, self.data.decode(*model.best_tags(batch)), strict=True):
                        tags[index] = names
                    if probabilities:
                        for index, part in zip(indices, model.marginals(batch).cpu().tolist(), strict=True):
                            chances[index] = part[: len(sentences[index])]
            for words, names, parts in zip(sentences, tags, chances, strict=True):
                answer: Settings = {"words": words, "tags": list(names)}
                if parts is not None:
                    known = self.data.tags.names
                    answer["probabilities"] = [dict(zip(known, part, strict=True)) for part in parts]
                yield answer

    def format(self, answer: Settings) -> str:
        """Columns, as they are read, with a blank line after each sentence."""
        columns = [answer["words"], answer["tags"]]
        if "probabilities" in answer:
            sure = zip(answer["probabilities"], answer["tags"], strict=True)
            columns.append([f"{chances[tag]:.4f}" for chances, tag in sure])
        return "\n".join("\t".join(row) for row in zip(*columns, strict=True)) + "\n"


def words_of(line: Any) -> list[str]:
    if isinstance(line, dict):
        words = line.get("words", line.get("text"))
        if isinstance(words, list) and all(isinstance(word, str) and word for word in words):
            return words
        if not isinstance(words, str):
            raise missing(line, "words", '["one", "two"]')
        line = words
    return str(line).split()


class TagInspection(Inspection):
    data: TagData

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        words = words_of(text)
        if not words:
            raise ConfigError(f"{text!r}: has no words")
        row = self.data.table.encode(TaggedSentence(tuple(words)))

        def run(copies: int, pads: int = 0) -> Any:
            return model(collate([row] * copies).padded(pads).to(device_of(model)))

        return InspectedText(model, run, {"": words}, "tag", self.data.tags.names.__getitem__)
