"""Shared by tasks that read one text into one vector and predict something about it, such as labels or a number."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from torch import Tensor

from elman.batches.groups import one_ahead
from elman.corpus import LabelledConfig, LabelledCorpus, Repairs, SourceReader, label_rows
from elman.corpus.config import TEXT, Record, Table
from elman.corpus.labelled_corpus import split_labels
from elman.errors import ConfigError, nan_error
from elman.evaluation.inference_mode import batch_threads, inference_mode
from elman.pipeline.tasks.base import PreparedData
from elman.pipeline.tasks.examples import MOST, ExampleTask, max_tokens
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.pretrained_vectors import Vocabulary, words_of_ids
from elman.pipeline.tasks.race import CONTEXTS, InferenceWork
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.warm_start import starting_tokenizer
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from elman.compiler.cpu.standalone import StepModel
    from elman.pipeline.recipe import Recipe
    from elman.pipeline.trained_model import TrainedModel


class TextTask(ExampleTask):
    """A task of single texts, with a tokenizer, and `target`: statistics of all targets, an object of `Target`.

    A `Target` has `of(texts)` and `load(path)` to make it, `target(text)` for the number to train on, `save(path)`.
    """

    data_config = LabelledConfig
    default_tokenizer: ClassVar[Settings] = {
        "type": "word", "lowercase": True, "split": "punctuation", "min_frequency": 2,
    }  # fmt: skip
    starts_from = inherits_tokenizer = True
    unit, by = "texts", ("text",)
    corpus_class: ClassVar[type[LabelledCorpus]] = LabelledCorpus
    Target: ClassVar[Any]
    saved_files = ("tokenizer.json", "target.json")
    races_stacks = True
    entrants = ("rnn", "gru", "lstm", "convolution", "attention", "mingru")
    cost_note = (
        "The speed is in texts per second, one at a time. State bytes are the size of the recurrent state after that "
        "many tokens; bidirectional layers have none."
    )

    def __init__(self, tokenizer: Tokenizer, target: Any, max_tokens: int = 0):
        self.tokenizer, self.target, self.max_tokens = tokenizer, target, max_tokens

    @classmethod
    def corpus(cls, recipe: "Recipe") -> LabelledCorpus:
        return cls.corpus_class(recipe.data)  # type: ignore[arg-type]

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: LabelledCorpus) -> Self:
        target = cls.Target.of(corpus.texts("train"))
        tokenizer = starting_tokenizer(recipe) or train_tokenizer(
            recipe.tokenizer.plain(), (text.text for text in corpus.texts("train"))
        )
        return cls(tokenizer, target, max_tokens(recipe))

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer.json")
        self.target.save(folder / self.saved_files[1])

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        return cls(tokenizer, cls.Target.load(folder / cls.saved_files[1]), max_tokens(recipe))

    def step_model(self, model: Any) -> "StepModel":
        from elman.compiler.cpu.standalone import StepModel
        from elman.models.reader_step import ReaderStep

        reader = ReaderStep(model).eval()
        return StepModel(reader, "number", max_tokens=self.max_tokens, start=reader.start)

    def rows(self, corpus: LabelledCorpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        """Fields `text` (ids) and `label` (the target)."""
        encode: Any = self.tokenizer.encode_batch
        return label_rows(corpus.texts(split), self.target, encode, max_tokens=self.max_tokens, repairs=repairs)

    def questions(self, corpus: LabelledCorpus, split: Any) -> Iterator[tuple[str, list[str]]]:
        return ((text.text, [", ".join(text.labels)]) for text in corpus.texts(split))

    def describe_target(self) -> Any:
        """What determines the encoding of `label`."""
        return vars(self.target)

    def fingerprint(self) -> str:
        decisive = [self.tokenizer.vocabulary, self.describe_target(), self.max_tokens]
        return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def describe_vocabulary(self) -> Settings:
        return {"vocabulary": self.tokenizer.vocab_size}

    def loss_field(self, recipe: "Recipe") -> str:
        return "text" if recipe.model.every_token else ""  # type: ignore[attr-defined]

    def speed_unit(self, recipe: "Recipe") -> str:
        return "tokens" if self.loss_field(recipe) else self.unit

    def outputs(
        self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str, *of_batch: Callable[[Any], Any]
    ) -> list[np.ndarray]:
        """Outputs of each of these functions for all batches (examples, …), in the order of the data."""
        store = prepared.stores[split]
        with inference_mode(model):
            parts = [[_numbers(one(batch)) for one in of_batch] for batch in self.batches(model, store, recipe)]
        order = np.argsort(self.order(store, recipe))
        return [np.concatenate(column)[order] for column in zip(*parts, strict=True)]

    @abstractmethod
    def run(self, model: Any, batch: Any) -> Any:
        """The outputs of a model for a batch (batch, …)."""

    @abstractmethod
    def answer(self, output: list[float], probabilities: bool) -> Settings:
        """The answer to a line, from its output."""

    def empty_answer(self, probabilities: bool) -> Settings | None:
        """The answer to an empty text; None to predict it like others, though no model was trained on one."""
        return None

    def predict(self, model: Any, lines: Any, recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        empty = self.empty_answer(probabilities)

        def run(batch: Any) -> list[list[float]]:
            return _numbers(self.run(model, batch).double()).tolist()

        def begin(texts: list[str]) -> tuple[list[str], Callable[[], list[Any]]]:
            asked = [text for text in texts if empty is None or text.strip()]
            rows = [{"text": ids} for ids in self.tokenizer.encode_batch(asked)]
            return texts, self.begin_rows(model, rows, recipe, run, submit)

        with batch_threads(model) as submit:
            windows = map(begin, self.windows(numbered(lines, lambda line: text_of(line, "text"))))
            for texts, outputs in one_ahead(windows, lambda begun: self.window is None and len(begun[0]) < MOST):
                found = iter(outputs())
                for text in texts:
                    blank = empty is not None and not text.strip()
                    yield {"text": text, **(empty if blank else self.answer(next(found), probabilities))}  # type: ignore[dict-item]

    def count_tokens(self, answer: Settings) -> tuple[int, int]:
        return len(self.tokenizer.encode(answer["text"])), 0

    def vocabularies(self, model: Any) -> list[Vocabulary]:
        return [Vocabulary(model, words_of_ids(self.tokenizer), "text")]

    def open_table(self, reader: SourceReader, recipe: "Recipe", header: bool) -> Table:
        """Labels in lines of text, as fastText has them, are a column of their own."""
        table = super().open_table(reader, recipe, header)
        first = next(table.records, None) if reader.source.format == TEXT else None
        if first is None:
            return table
        records = chain([first], table.records)
        if not split_labels(first.values[0])[0]:
            return table._replace(records=records)
        names = ("label", *table.names)
        parts = ((split_labels(record.values[0]), record.line) for record in records)
        return Table(names, (Record(names, (" ".join(labels), text), line) for (labels, text), line in parts))

    def tokens(self, text: str) -> tuple[list[int], list[str]]:
        """Ids and names of the tokens of a text to inspect; an empty text is an error."""
        ids = self.tokenizer.encode(text).tolist()
        if not ids:
            raise ConfigError(f"{text!r}: has no tokens")
        return ids, [self.tokenizer.token(id) for id in ids]

    def inference_work(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> InferenceWork:
        work, model = super().inference_work(trained, prepared, split), trained.model
        if not model.causal:
            return work
        return work._replace(state_after=partial(stack_state, model), contexts=CONTEXTS)


def _numbers(outputs: Tensor) -> np.ndarray:
    if outputs.isnan().any():
        raise nan_error()
    return outputs.cpu().numpy()


def stack_state(model: Any, tokens: Tensor) -> Any:
    """The recurrent state of a causal model after some tokens."""
    return model.stack(model.embedding(tokens))[1]
