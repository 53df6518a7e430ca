"""Tagging: a tag for each word of a sentence."""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from elman.batches import collate
from elman.batches.tagging import WordsConfig, WordTable
from elman.config import Config
from elman.corpus import Corpus, Repairs, TaggedConfig, TaggedCorpus, TaggedSentence, TagSet
from elman.errors import ConfigError
from elman.evaluation import score_tags
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.evaluation.tagging import entity_f1
from elman.inspection.inspected_text import InspectedText
from elman.models import Tagger
from elman.pipeline.tasks.base import Judged, Parts, Prepared, Settings, pick
from elman.pipeline.tasks.examples import ExampleTask, chunks, similar
from elman.pipeline.tasks.files import keep_json, read_json
from elman.pipeline.tasks.lines import missing, numbered
from elman.pipeline.tasks.starting import start_from
from elman.registry import Registry

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class _Words:
    """Words with their characters: what a tagger reads."""

    Config = WordsConfig


TABLES: Registry[Any] = Registry("tokenizer")
TABLES.register("words")(_Words)
# Words come with their characters, in a width of their own: a first layer brings it to that of the others.
TWO_WAY: list[Settings] = [
    {"convolution": {"kernel_size": 1, "activation": "linear"}},
    {"two-way-attention": {"num_heads": 4, "positions": "rotary"}},
    {"feedforward": {}},
]


class Tag(ExampleTask):
    """Tag: a tag for each word of a sentence."""

    name, unit, default_model, by = "tag", "sentences", "tagger", ("words",)
    figures = ("accuracy", "precision", "recall", "f1")
    Data = TaggedConfig

    def __init__(self, table: WordTable, tags: TagSet):
        self.table, self.tags = table, tags

    @classmethod
    def completed(cls, settings: Settings) -> Settings:
        return {"tokenizer": "words", **super().completed(settings)}

    @classmethod
    def tokenizer_config(cls, settings: Any) -> Config:
        return pick(TABLES, "tokenizer", {"type": settings} if isinstance(settings, str) else settings)

    @classmethod
    def of_layer(cls, name: str, settings: Any) -> Settings:
        """A causal layer is taken both ways: a tag depends on both sides of its word."""
        return cls.both_ways(super().of_layer(name, settings))

    @classmethod
    def transformer(cls, given: Settings) -> Settings:
        return {"pattern": TWO_WAY, **given, "type": cls.default_model}

    @classmethod
    def smallest(cls, config: Any) -> Tagger:
        return Tagger(config, 2, 3, 2)

    @classmethod
    def corpus(cls, recipe: "Recipe") -> TaggedCorpus:
        return TaggedCorpus(recipe.data)  # type: ignore[arg-type]

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: Corpus) -> Self:
        assert isinstance(corpus, TaggedCorpus)
        words: Any = recipe.tokenizer
        table = WordTable.of(corpus.sentences("train"), WordsConfig.make(_untyped(words.plain())))
        odd = Repairs()
        tags = TagSet.checked(lambda: corpus.sentences("train"), corpus.config.scheme, odd)
        corpus.notice("train", odd)
        return cls(table, tags)

    def save(self, folder: Path) -> None:
        keep_json(self.table.plain(), folder / "words.json")
        keep_json({"names": self.tags.names, "scheme": self.tags.scheme}, folder / "tags.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        tags = read_json(folder / "tags.json")
        return cls(WordTable.from_plain(read_json(folder / "words.json")), TagSet(tags["names"], tags["scheme"]))

    @classmethod
    def saved(cls, folder: Path) -> bool:
        return (folder / "words.json").exists() and (folder / "tags.json").exists()

    def rows(self, corpus: Corpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        assert isinstance(corpus, TaggedCorpus)
        return (self.table.encode(sentence, self.tags) for sentence in corpus.sentences(split))

    def questions(self, corpus: Corpus, split: Any) -> Iterator[tuple[Settings, list[str]]]:
        assert isinstance(corpus, TaggedCorpus)
        for sentence in corpus.sentences(split):
            words = list(sentence.words)
            yield {"words": words}, self.parts({"words": words, "tags": sentence.tags})

    def question(self, line: Settings) -> str:
        return " ".join(line["words"])

    def parts(self, answer: Settings) -> list[str]:
        return [f"{word}/{tag}" for word, tag in zip(answer["words"], answer["tags"], strict=True)]

    def fingerprint(self) -> str:
        facts = [self.table.plain(), self.tags.names, self.tags.scheme]
        return sha256(json.dumps(facts).encode()).hexdigest()

    def lacking(self, model: Any, prepared: Prepared) -> dict[str, str]:
        of_entities = ("precision", "recall", "f1")
        return {} if self.tags.marks_entities else dict.fromkeys(of_entities, "its tags mark no entities")

    def facts(self) -> Settings:
        return {"vocabulary": self.table.vocab_size, "tags": self.tags.names, "scheme": self.tags.scheme}

    def build(self, config: Any) -> Tagger:
        legal = None if self.tags.scheme == "none" else self.tags.legal()
        return Tagger(config, self.table.vocab_size, self.table.character_count, len(self.tags), legal)

    def begin(self, model: Any, recipe: "Recipe") -> str:
        return start_from(model, recipe.start_from, self.table.words)

    def unit_of(self, model: Any) -> str:
        return "words"

    def judge(self, model: Any, prepared: Prepared, recipe: "Recipe", split: str) -> Judged:
        gold: list[tuple[str, ...]] = []
        found: list[tuple[str, ...]] = []
        store = prepared.stores[split]
        with inference_mode(model):
            for batch in self.batches(model, store, recipe):
                true = batch.ragged("tags")
                gold += self._named(true.values, true.lengths)
                found += self._named(*model.best_tags(batch))
        order = np.argsort(self.numbers(store, recipe))
        gold, found = [gold[place] for place in order], [found[place] for place in order]
        score = score_tags(gold, found)
        scores: Settings = {"accuracy": score.accuracy, "accuracy_interval": score.intervals["accuracy"]}
        if self.tags.marks_entities:
            for name in ("precision", "recall", "f1"):
                scores |= {name: getattr(score.entities, name), f"{name}_interval": score.intervals.get(name)}
            keys = ("type", "precision", "recall", "f1", "found")
            scores["per_type"] = [dict(zip(keys, line, strict=True)) for line in score.table()[1:]]
        scores |= {"loss": self.loss(model, store, recipe), "sentences": score.sentences, "words": score.words}
        hits = [[float(a == b) for a, b in zip(*pair, strict=True)] for pair in zip(gold, found, strict=True)]
        right, sizes = np.array([sum(row) for row in hits]), np.array([len(row) for row in hits], dtype=np.float64)
        others = {"f1": Parts(np.array(score.by_sentence), entity_f1)} if self.tags.marks_entities else {}
        positions = np.array([hit for row in hits for hit in row])
        return Judged(scores, "accuracy", right, sizes, others=others, positions=positions)

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        for sentences in chunks(numbered(lines, _words)):
            rows = [self.table.encode(TaggedSentence(tuple(words))) for words in sentences]
            self.watch(model, rows)
            tags: list[tuple[str, ...]] = [()] * len(rows)
            chances: list[Any] = [None] * len(rows)
            with inference_mode(model):
                for places, batch in similar(rows, "words", recipe.evaluation.batch_size, model):
                    for place, names in zip(places, self._named(*model.best_tags(batch)), strict=True):
                        tags[place] = names
                    if probabilities:
                        for place, part in zip(places, model.marginals(batch).cpu().tolist(), strict=True):
                            chances[place] = part[: len(sentences[place])]
            for words, names, parts in zip(sentences, tags, chances, strict=True):
                answer: Settings = {"words": words, "tags": list(names)}
                if parts is not None:
                    answer["probabilities"] = [dict(zip(self.tags.names, part, strict=True)) for part in parts]
                yield answer

    def reading(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        words = _words(text)
        if not words:
            raise ConfigError(f"{text!r}: has no word to look at")
        row = self.table.encode(TaggedSentence(tuple(words)))

        def run(copies: int, pads: int = 0) -> Any:
            return model(collate([row] * copies).padded(pads).to(device_of(model)))

        return InspectedText(model, run, {"": words}, "tag", self.tags.names.__getitem__)

    def plain(self, answer: Settings) -> str:
        """Columns, as they are read, with a blank line after each sentence."""
        columns = [answer["words"], answer["tags"]]
        if "probabilities" in answer:
            sure = zip(answer["probabilities"], answer["tags"], strict=True)
            columns.append([f"{chances[tag]:.4f}" for chances, tag in sure])
        return "\n".join("\t".join(row) for row in zip(*columns, strict=True)) + "\n"

    def _named(self, values: Any, lengths: Any) -> list[tuple[str, ...]]:
        rows = zip(values.tolist(), lengths.tolist(), strict=True)
        return [self.tags.decode(row[:length]) for row, length in rows]


def _untyped(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key != "type"}


def _words(line: Any) -> list[str]:
    if isinstance(line, dict):
        words = line.get("words", line.get("text"))
        if isinstance(words, list) and all(isinstance(word, str) and word for word in words):
            return words
        if not isinstance(words, str):
            raise missing(line, "words", '["one", "two"]')
        line = words
    return str(line).split()
