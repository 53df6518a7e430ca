"""LabelledText texts: tokenizer and labels learned from training data, and classifiers built for them."""

from collections.abc import Iterator
from typing import Any

from elman.corpus import Corpus, LabelledCorpus, LabelSet
from elman.models import Classifier
from elman.pipeline.tasks.base import Models
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.texts import TextData


class ClassifyData(TextData):
    Target, target_file = LabelSet, "labels.json"

    @property
    def labels(self) -> LabelSet:
        return self.target

    def questions(self, corpus: Corpus, split: Any) -> Iterator[tuple[str, list[str]]]:
        assert isinstance(corpus, LabelledCorpus)
        for text in corpus.texts(split):
            yield text.text, [", ".join(name for name in self.labels.names if name in text.labels)]

    def answer_parts(self, answer: Settings) -> list[str]:
        return [", ".join(answer["labels"]) if self.labels.several else answer["label"]]

    def target_facts(self) -> Any:
        return self.labels.names

    def facts(self) -> Settings:
        return {**super().facts(), "labels": list(self.labels.names)}


class ClassifyModels(Models):
    data: ClassifyData

    def build(self, config: Any) -> Classifier:
        labels = self.data.labels
        weights = labels.weights(config.class_weights)
        return Classifier(config, self.data.tokenizer.vocab_size, len(labels), labels.several, weights)
