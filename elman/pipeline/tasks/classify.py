"""Classification: one label of several for each text, or any number of them."""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from elman.corpus import Corpus, LabelledConfig, LabelledCorpus, LabelSet, Repairs, label_rows
from elman.errors import ConfigError
from elman.evaluation import score_label_sets, score_labels
from elman.evaluation.classification import label_counts, macro_f1
from elman.evaluation.inference_mode import inference_mode
from elman.inspection.inspected_text import InspectedText, inspect_classifier
from elman.models import Classifier
from elman.pipeline.tasks.base import Judged, Parts, Prepared, Settings
from elman.pipeline.tasks.examples import ExampleTask, chunks, longest, similar
from elman.pipeline.tasks.files import keep_tokenizer
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.starting import starting_tokenizer
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

THRESHOLD = 0.5


class Classify(ExampleTask):
    """Classify: which label, or which labels, a text has."""

    name, unit, default_model, by = "classify", "texts", "classifier", ("text",)
    figures = ("accuracy", "micro_f1", "macro_f1", "calibration_error")
    Data = LabelledConfig

    def __init__(self, tokenizer: Tokenizer, labels: LabelSet, max_tokens: int = 0):
        self.tokenizer, self.labels, self.max_tokens = tokenizer, labels, max_tokens

    @classmethod
    def completed(cls, settings: Settings) -> Settings:
        words = {"type": "word", "lowercase": True, "split": "punctuation", "min_frequency": 2}
        return {"tokenizer": words, **super().completed(settings)}

    @classmethod
    def smallest(cls, config: Any) -> Classifier:
        return Classifier(config, 2, 2)

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
        return cls(tokenizer, labels, longest(recipe))

    def save(self, folder: Path) -> None:
        keep_tokenizer(self.tokenizer, folder / "tokenizer.json")
        self.labels.save(folder / "labels.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        return cls(load_tokenizer(folder / "tokenizer.json"), LabelSet.load(folder / "labels.json"), longest(recipe))

    @classmethod
    def saved(cls, folder: Path) -> bool:
        return (folder / "tokenizer.json").exists() and (folder / "labels.json").exists()

    def rows(self, corpus: Corpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        assert isinstance(corpus, LabelledCorpus)
        encode: Any = self.tokenizer.encode_batch
        return label_rows(corpus.texts(split), self.labels, encode, max_tokens=self.max_tokens, repairs=repairs)

    def questions(self, corpus: Corpus, split: Any) -> Iterator[tuple[str, list[str]]]:
        assert isinstance(corpus, LabelledCorpus)
        for text in corpus.texts(split):
            yield text.text, [", ".join(name for name in self.labels.names if name in text.labels)]

    def parts(self, answer: Settings) -> list[str]:
        return [", ".join(answer["labels"]) if self.labels.several else answer["label"]]

    def fingerprint(self) -> str:
        facts = [self.tokenizer.vocabulary, self.labels.names, self.max_tokens]
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def lacking(self, model: Any, prepared: Prepared) -> dict[str, str]:
        return {} if self.labels.several else {"micro_f1": "with one label for each text it is the accuracy"}

    def facts(self) -> Settings:
        return {"vocabulary": self.tokenizer.vocab_size, "labels": list(self.labels.names)}

    def build(self, config: Any) -> Classifier:
        weights = self.labels.weights(config.class_weights)
        return Classifier(config, self.tokenizer.vocab_size, len(self.labels), self.labels.several, weights)

    def unit_of(self, model: Any) -> str:
        return model.unit

    def judge(self, model: Any, prepared: Prepared, recipe: "Recipe", split: str) -> Judged:
        chances, truth = [], []
        with inference_mode(model):
            for batch in self.batches(model, prepared.stores[split], recipe):
                chances.append(model.probabilities(batch).cpu().numpy())
                given = batch.ragged("label").values if self.labels.several else batch.plain("label")
                truth.append(given.cpu().numpy())
        found, right, names = np.concatenate(chances), np.concatenate(truth), self.labels.names
        order = np.argsort(self.numbers(prepared.stores[split], recipe))
        found, right = found[order], right[order]
        if self.labels.several:
            scores = score_label_sets(found, right, names, THRESHOLD).plain()
            answers, truths = found > THRESHOLD, right.astype(bool)
        else:
            scores = score_labels(found, right, names).plain()
            answers, truths = (one[:, None] == np.arange(len(names)) for one in (found.argmax(axis=1), right))
        hits = (answers == truths).all(axis=1).astype(np.float64)
        others = {"macro_f1": Parts(label_counts(answers, truths), macro_f1)}
        return Judged(scores, "accuracy", hits, np.ones(len(hits)), others=others)

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        for texts in chunks(numbered(lines, lambda line: text_of(line, "text"))):
            rows = [{"text": np.asarray(ids)} for ids in self.tokenizer.encode_batch(texts)]
            self.watch(model, rows)
            found = np.zeros((len(rows), len(self.labels)))
            with inference_mode(model):
                for places, batch in similar(rows, "text", recipe.evaluation.batch_size, model):
                    found[places] = model.probabilities(batch).cpu().numpy()
            for text, chances in zip(texts, found, strict=True):
                yield {"text": text} | self._answer(chances, probabilities)

    def _answer(self, chances: Any, probabilities: bool) -> Settings:
        names = self.labels.names
        if self.labels.several:
            answer: Settings = {"labels": [name for name, chance in zip(names, chances, strict=True) if chance > 0.5]}
        else:
            best = int(chances.argmax())
            answer = {"label": names[best], "probability": float(chances[best])}
        if probabilities:
            answer["probabilities"] = dict(zip(names, map(float, chances), strict=True))
        return answer

    def reading(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        ids = self.tokenizer.encode(text).tolist()
        if not ids:
            raise ConfigError(f"{text!r}: has no token to look at")
        return inspect_classifier(model, ids, [self.tokenizer.token(id) for id in ids], self.labels.names)

    def plain(self, answer: Settings) -> str:
        parts = self.parts(answer)
        if "probabilities" in answer:
            parts += [f"{name}={chance:.4f}" for name, chance in answer["probabilities"].items()]
        return "\t".join([*parts, answer["text"]])
