"""Labelled texts: tokenizer and labels learned from training data, and classifiers built for them."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from elman.corpus import Corpus, LabelledCorpus, LabelSet, Repairs, label_rows
from elman.models import Classifier
from elman.pipeline.tasks.base import Models
from elman.pipeline.tasks.examples import ExampleData, max_tokens
from elman.pipeline.tasks.files import save_tokenizer
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.warm_start import starting_tokenizer
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class ClassifyData(ExampleData):
    unit, by = "texts", ("text",)

    def __init__(self, tokenizer: Tokenizer, labels: LabelSet, max_tokens: int = 0):
        self.tokenizer, self.labels, self.max_tokens = tokenizer, labels, max_tokens

    @classmethod
    def corpus(cls, recipe: "Recipe") -> LabelledCorpus:
        return LabelledCorpus(recipe.data)  # type: ignore[arg-type]

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: Corpus) -> Self:
        assert isinstance(corpus, LabelledCorpus)
        labels = LabelSet.of(corpus.texts("train"))
        tokenizer = starting_tokenizer(recipe) or train_tokenizer(
            recipe.tokenizer.plain(), (text.text for text in corpus.texts("train"))
        )
        return cls(tokenizer, labels, max_tokens(recipe))

    def save(self, folder: Path) -> None:
        save_tokenizer(self.tokenizer, folder / "tokenizer.json")
        self.labels.save(folder / "labels.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        labels = LabelSet.load(folder / "labels.json")
        return cls(load_tokenizer(folder / "tokenizer.json"), labels, max_tokens(recipe))

    @classmethod
    def is_saved(cls, folder: Path) -> bool:
        return (folder / "tokenizer.json").exists() and (folder / "labels.json").exists()

    def rows(self, corpus: Corpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        assert isinstance(corpus, LabelledCorpus)
        encode: Any = self.tokenizer.encode_batch
        return label_rows(corpus.texts(split), self.labels, encode, max_tokens=self.max_tokens, repairs=repairs)

    def questions(self, corpus: Corpus, split: Any) -> Iterator[tuple[str, list[str]]]:
        assert isinstance(corpus, LabelledCorpus)
        for text in corpus.texts(split):
            yield text.text, [", ".join(name for name in self.labels.names if name in text.labels)]

    def answer_parts(self, answer: Settings) -> list[str]:
        return [", ".join(answer["labels"]) if self.labels.several else answer["label"]]

    def fingerprint(self) -> str:
        facts = [self.tokenizer.vocabulary, self.labels.names, self.max_tokens]
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def facts(self) -> Settings:
        return {"vocabulary": self.tokenizer.vocab_size, "labels": list(self.labels.names)}

    def loss_field(self, recipe: "Recipe") -> str:
        return "text" if recipe.model.every_token else ""  # type: ignore[attr-defined]


class ClassifyModels(Models):
    data: ClassifyData

    def build(self, config: Any) -> Classifier:
        labels = self.data.labels
        weights = labels.weights(config.class_weights)
        return Classifier(config, self.data.tokenizer.vocab_size, len(labels), labels.several, weights)
