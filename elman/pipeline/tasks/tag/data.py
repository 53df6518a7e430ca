"""Tagged sentences: word table and tags learned from training data, and taggers built for them."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from elman.batches.tagging import WordsConfig, WordTable
from elman.corpus import Corpus, Repairs, TaggedCorpus, TagSet
from elman.models import Tagger
from elman.pipeline.tasks.base import Models
from elman.pipeline.tasks.examples import ExampleData
from elman.pipeline.tasks.files import read_json, save_json
from elman.pipeline.tasks.settings import Settings, untyped
from elman.pipeline.tasks.warm_start import copy_weights

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class TagData(ExampleData):
    unit, by = "sentences", ("words",)

    def __init__(self, table: WordTable, tags: TagSet):
        self.table, self.tags = table, tags

    @classmethod
    def corpus(cls, recipe: "Recipe") -> TaggedCorpus:
        return TaggedCorpus(recipe.data)

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: Corpus) -> Self:
        assert isinstance(corpus, TaggedCorpus)
        words = WordsConfig.make(untyped(recipe.tokenizer.plain()))
        table = WordTable.of(corpus.sentences("train"), words)
        repairs = Repairs()
        tags = TagSet.checked(lambda: corpus.sentences("train"), corpus.config.scheme, repairs)
        corpus.notice("train", repairs)
        return cls(table, tags)

    def save(self, folder: Path) -> None:
        save_json(self.table.plain(), folder / "words.json")
        save_json({"names": self.tags.names, "scheme": self.tags.scheme}, folder / "tags.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        tags = read_json(folder / "tags.json")
        return cls(WordTable.from_plain(read_json(folder / "words.json")), TagSet(tags["names"], tags["scheme"]))

    @classmethod
    def is_saved(cls, folder: Path) -> bool:
        return (folder / "words.json").exists() and (folder / "tags.json").exists()

    def rows(self, corpus: Corpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        assert isinstance(corpus, TaggedCorpus)
        return (self.table.encode(sentence, self.tags) for sentence in corpus.sentences(split))

    def questions(self, corpus: Corpus, split: Any) -> Iterator[tuple[Settings, list[str]]]:
        assert isinstance(corpus, TaggedCorpus)
        for sentence in corpus.sentences(split):
            words = list(sentence.words)
            yield {"words": words}, self.answer_parts({"words": words, "tags": sentence.tags})

    def question_text(self, line: Settings) -> str:
        return " ".join(line["words"])

    def answer_parts(self, answer: Settings) -> list[str]:
        return [f"{word}/{tag}" for word, tag in zip(answer["words"], answer["tags"], strict=True)]

    def fingerprint(self) -> str:
        facts = [self.table.plain(), self.tags.names, self.tags.scheme]
        return sha256(json.dumps(facts).encode()).hexdigest()

    def facts(self) -> Settings:
        return {"vocabulary": self.table.vocab_size, "tags": self.tags.names, "scheme": self.tags.scheme}

    def loss_field(self, recipe: "Recipe") -> str:
        return "words"

    def decode(self, values: Any, lengths: Any) -> list[tuple[str, ...]]:
        """The names of the tags of each row of numbers (rows, longest)."""
        rows = zip(values.tolist(), lengths.tolist(), strict=True)
        return [self.tags.decode(row[:length]) for row, length in rows]


class TagModels(Models):
    data: TagData

    def build(self, config: Any) -> Tagger:
        table, tags = self.data.table, self.data.tags
        legal = None if tags.scheme == "none" else tags.legal()
        return Tagger(config, table.vocab_size, table.character_count, len(tags), legal)

    def warm_start(self, model: Any, recipe: "Recipe") -> str:
        return copy_weights(model, recipe.start_from, self.data.table.words)
