"""Tagging: word table and tags learned from training data, scores over words and entities, and answers."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import field_validator

from elman.batches import ExampleStore, collate
from elman.batches.tagging import StoredWords, WordsConfig, WordTable
from elman.config import Facts
from elman.corpus import Repairs, SourceReader, TaggedConfig, TaggedCorpus, TaggedSentence, TagSet
from elman.corpus.config import CONLL, TEXT, WORDS, Table
from elman.corpus.tagged_corpus import tagged_table
from elman.corpus.tags import Scheme
from elman.corpus.text import text_table
from elman.errors import ConfigError
from elman.evaluation.classification import never_answered
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.evaluation.tagging import entity_f1, score_tags
from elman.inspection.inspected_text import InspectedText
from elman.models import TAGGERS, Tagger
from elman.pipeline.tasks import TASKS, EvaluationResult, Measure, PreparedData
from elman.pipeline.tasks.base import ResampledScore
from elman.pipeline.tasks.examples import ExampleTask
from elman.pipeline.tasks.files import save_json
from elman.pipeline.tasks.lines import missing, numbered
from elman.pipeline.tasks.pretrained_vectors import Vocabulary
from elman.pipeline.tasks.settings import TRANSFORMER, Settings, bidirectional, in_layers, untyped
from elman.pipeline.tasks.warm_start import copy_weights
from elman.registry import Registry
from elman.tokenizers.base import UNK
from elman.tokenizers.word_splitter import is_split, split_words
from elman.untrusted import read_as

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe


class _Words:
    """Words with their characters: what a tagger reads."""

    Config = WordsConfig


class StoredTags(Facts):
    """The contents of tags.json."""

    names: list[str]
    scheme: Scheme

    @field_validator("names")
    @classmethod
    def _distinct(cls, names: list[str]) -> list[str]:
        if len({*names}) < max(1, len(names)):
            raise ValueError("no tags, or one of them twice")
        return names

    def tags(self) -> TagSet:
        return TagSet(self.names, self.scheme)


TABLES: Registry[Any] = Registry("tokenizer")
TABLES.register("words")(_Words)
# Words come with their characters, in a width of their own: a first layer brings it to that of the others.
TRANSFORMER_PATTERN: list[Settings] = [
    {"convolution": {"kernel_size": 1, "activation": "linear"}},
    {"two-way-attention": {"num_heads": 4, "positions": "rotary"}},
    {"feedforward": {}},
]
OF_ENTITIES = ("precision", "recall", "f1")


@TASKS.register("tag")
class Tag(ExampleTask):
    """Tag: a tag for each word of a sentence."""

    data_config, models, default_model = TaggedConfig, TAGGERS, "tagger"
    tokenizers, default_tokenizer = TABLES, "words"
    metrics = ("accuracy", "precision", "recall", "f1")
    starts_from = True
    inputs = ("text", "words")
    endpoint = "tag"
    saved_files = ("words.json", "tags.json")
    unit, by = "sentences", ("words",)
    race_unit = "words"
    entrants = ("rnn", "gru", "lstm", "convolution", "attention")
    measures = (
        Measure("f1", False, "F1 of entities", percent=True),
        Measure("accuracy", False, "of the tags right", percent=True),
    )
    shown_scores = ("loss", "accuracy", "baseline_accuracy", "f1")
    cost_note = (
        "A tagger generates no text and has no recurrent state, because it uses both sides of each word; the speed is "
        "in sentences per second, one at a time."
    )

    def __init__(self, table: WordTable, tags: TagSet):
        self.table, self.tags = table, tags
        self.lines_split = 0  # since the last `pop_notes`

    @classmethod
    def columns(cls, parts: list[int | str]) -> Settings:
        if len(parts) == 2:
            return {"data.columns.word": parts[0], "data.columns.tag": parts[1]}
        return super().columns(parts)

    @classmethod
    def of_layer(cls, name: str, settings: Mapping[str, Any]) -> Settings:
        """A causal layer is made bidirectional: a tag depends on both sides of its word."""
        return bidirectional(super().of_layer(name, settings))

    @classmethod
    def transformer(cls, settings: Settings) -> Settings:
        pattern, settings = in_layers(settings.get("pattern", TRANSFORMER_PATTERN), "attention", settings)
        return {**settings, "pattern": pattern, "type": cls.default_model}

    @classmethod
    def starting_body(cls, run: str, stored: Settings, asked: Mapping[str, Any]) -> Settings:
        """Without character vectors, which would make the first layer wider."""
        body = super().starting_body(run, stored, asked)
        return {**body, "embedding_size": body["embedding_size"] or body["hidden_size"], "characters": None}

    @classmethod
    def customary_model(cls, name: str) -> Settings | None:
        return {"type": TRANSFORMER} if name == "attention" else None

    @classmethod
    def build_smallest(cls, config: Any) -> Tagger:
        return Tagger(config, 2, 3, 2)

    def build(self, config: Any) -> Tagger:
        legal = None if self.tags.scheme == "none" else self.tags.legal()
        return Tagger(config, self.table.vocab_size, self.table.character_count, len(self.tags), legal)

    def warm_start(self, model: Any, recipe: "Recipe") -> str:
        return copy_weights(model, recipe.start_from, self.table.words)

    def vocabularies(self, model: Any) -> list[Vocabulary]:
        return [Vocabulary(model, [UNK, *self.table.words], "words")]

    @classmethod
    def corpus(cls, recipe: "Recipe") -> TaggedCorpus:
        return TaggedCorpus(recipe.data)

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: TaggedCorpus) -> Self:
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
        words, tags = read_as(StoredWords, folder / "words.json"), read_as(StoredTags, folder / "tags.json")
        return cls(words.table(), tags.tags())

    def fingerprint(self) -> str:
        decisive = [self.table.plain(), self.tags.names, self.tags.scheme]
        return sha256(json.dumps(decisive).encode()).hexdigest()

    def describe_vocabulary(self) -> Settings:
        return {"vocabulary": self.table.vocab_size, "tags": self.tags.names, "scheme": self.tags.scheme}

    def class_counts(self, store: ExampleStore) -> dict[str, int]:
        counts = np.bincount(store.ragged["tags"][0], minlength=len(self.tags))
        return dict(zip(self.tags.names, counts.tolist(), strict=True))

    def loss_field(self, recipe: "Recipe") -> str:
        return "words"

    def rows(self, corpus: TaggedCorpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        return (self.table.encode(sentence, self.tags) for sentence in corpus.sentences(split))

    def questions(self, corpus: TaggedCorpus, split: Any) -> Iterator[tuple[Settings, list[str]]]:
        for sentence in corpus.sentences(split):
            words = list(sentence.words)
            yield {"words": words}, self.answer_parts({"words": words, "tags": sentence.tags})

    def question_text(self, line: Settings) -> str:
        return " ".join(line["words"])

    def answer_parts(self, answer: Settings) -> list[str]:
        return [f"{word}/{tag}" for word, tag in zip(answer["words"], answer["tags"], strict=True)]

    def decode(self, values: Any, lengths: Any) -> list[tuple[str, ...]]:
        """The names of the tags of each row of numbers (rows, longest)."""
        rows = zip(values.tolist(), lengths.tolist(), strict=True)
        return [self.tags.decode(row[:length]) for row, length in rows]

    def unavailable_metrics(self, model: Any, prepared: PreparedData) -> dict[str, str]:
        return {} if self.tags.marks_entities else dict.fromkeys(OF_ENTITIES, "its tags mark no entities")

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        gold: list[tuple[str, ...]] = []
        found: list[tuple[str, ...]] = []
        store, entities = prepared.stores[split], self.tags.marks_entities
        with inference_mode(model):
            for batch in self.batches(model, store, recipe):
                true = batch.ragged("tags")
                gold += self.decode(true.values, true.lengths)
                found += self.decode(*model.best_tags(batch))
        order = np.argsort(self.order(store, recipe))
        gold, found = [gold[place] for place in order], [found[place] for place in order]
        score = score_tags(gold, found)
        scores: Settings = {"accuracy": score.accuracy, "accuracy_interval": score.intervals["accuracy"]}
        given, answered = (Counter(tag for tags in sentences for tag in tags) for sentences in (gold, found))
        scores["baseline_accuracy"] = max(given.values()) / score.words  # of always answering the most frequent tag
        if entities:
            for name in OF_ENTITIES:
                scores |= {name: getattr(score.entities, name), f"{name}_interval": score.intervals.get(name)}
            keys = ("type", "precision", "recall", "f1", "found")
            scores["per_type"] = [dict(zip(keys, line, strict=True)) for line in score.table()[1:]]
        scores |= {"loss": self.loss(model, store, recipe), "sentences": score.sentences, "words": score.words}
        hits = [[float(a == b) for a, b in zip(*pair, strict=True)] for pair in zip(gold, found, strict=True)]
        right, sizes = np.array([sum(row) for row in hits]), np.array([len(row) for row in hits], dtype=np.float64)
        others = {"f1": ResampledScore(np.array(score.by_sentence), entity_f1)} if entities else {}
        positions = np.array([hit for row in hits for hit in row])
        notes = tuple(never_answered(given, answered))
        return EvaluationResult(scores, "accuracy", right, sizes, others=others, notes=notes, positions=positions)

    def open_table(self, reader: SourceReader, recipe: "Recipe", header: bool) -> Table:
        form = reader.source.format
        if form != CONLL:
            lines = form in (TEXT, WORDS)
            return text_table(reader, form) if lines else super().open_table(reader, recipe, header)
        assert isinstance(recipe.data, TaggedConfig)
        return tagged_table(replace(reader, source=replace(reader.source, format=TEXT)), recipe.data.columns)

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        def run(batch: Any, _: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
            tags = self.decode(*model.best_tags(batch))
            chances = model.marginals(batch).cpu().tolist() if probabilities else repeat(None, len(tags))
            return zip(tags, chances, strict=True)

        for sentences in self.windows(numbered(lines, self.words_of)):
            rows = [self.table.encode(TaggedSentence(tuple(words))) for words in sentences if words]
            found = iter(self.run_rows(model, rows, recipe, run))
            for words in sentences:
                tags, chances = next(found) if words else ((), [])
                answer: Settings = {"words": words, "tags": list(tags)}
                if probabilities:
                    real = chances[: len(words)]  # without padding
                    answer["probabilities"] = [dict(zip(self.tags.names, part, strict=True)) for part in real]
                yield answer

    def words_of(self, line: Any) -> list[str]:
        """Words as they are given, in a list or separated by spaces; a raw sentence is split."""
        text = line.get("text") if isinstance(line, dict) else line
        if isinstance(line, dict) and "words" in line:
            words = line["words"]
            if isinstance(words, list) and all(isinstance(word, str) and word for word in words):
                return words
            if not isinstance(words, str):
                raise missing(line, "words", '["one", "two"]')
            return words.split()
        if not isinstance(text, str):
            raise missing(line, "words", '["one", "two"]')
        words = text.split()
        if is_split(text) or (found := split_words(text, self.table.knows)) == words:
            return words
        self.lines_split += 1
        return found

    counts = ("long_lines", "lines_split")

    def pop_notes(self) -> list[str]:
        count, self.lines_split = self.lines_split, 0
        if not count:
            return []
        return [
            f"{count:,} raw sentences were split into words, by Unicode rules and as in training; words of your own "
            'are read with --from words, as CoNLL columns, or as {"words": [...]}'
        ]

    def answer_columns(self, answer: Settings) -> Settings:
        found = {name: value for name, value in answer.items() if name != "probabilities"}
        return {**found, "probability": self._of_tags(answer)} if "probabilities" in answer else found

    def served(self, answer: Settings) -> Settings:
        """With its words, which a raw sentence was split into."""
        return {"words": answer["words"], **super().served(answer)}

    def count_tokens(self, answer: Settings) -> tuple[int, int]:
        return len(answer["words"]), 0

    def format(self, answer: Settings) -> str:
        """Columns, as they are read, with a blank line after each sentence."""
        columns = [answer["words"], answer["tags"]]
        if "probabilities" in answer:
            columns.append([f"{chance:.4f}" for chance in self._of_tags(answer)])
        return "\n".join("\t".join(row) for row in zip(*columns, strict=True)) + "\n"

    @staticmethod
    def _of_tags(answer: Settings) -> list[float]:
        """The probabilities of the predicted tags."""
        return [chances[tag] for chances, tag in zip(answer["probabilities"], answer["tags"], strict=True)]

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        words = self.words_of(text)
        if not words:
            raise ConfigError(f"{text!r}: has no words")
        row = self.table.encode(TaggedSentence(tuple(words)))

        def run(copies: int, pads: int = 0) -> Any:
            return model(collate([row] * copies).padded(pads).to(device_of(model)))

        return InspectedText(model, run, {"": words}, "tag", self.tags.names.__getitem__)
