"""Beside the truth: a synthetic language knows its own distribution, so a model's distance to the best is measured."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from elman.corpus.document import Document
from elman.errors import DataError
from elman.evaluation.jsonable import jsonable
from elman.evaluation.likelihood import Likelihood
from elman.evaluation.word_probabilities import WordProbabilities, read
from elman.models import prediction_of


class Language(Protocol):
    @property
    def entropy(self) -> float: ...  # nats per token, the end of a document counted
    def log_probs(self, words: Sequence[str]) -> list[float]: ...  # of each word and of the end, natural logarithms


class Accuracy(NamedTuple):
    """How often the right form was more probable than the wrong one, among words with the same `value`."""

    value: int  # the distance, or the number of attractors
    accuracy: float
    words: int


class Loss(NamedTuple):
    """Nats at marked words that are equally far from what decides their form."""

    distance: int
    loss: float
    best: float
    words: int


@dataclass(frozen=True)
class Agreement:
    accuracy: float
    words: int
    by_distance: list[Accuracy]
    by_attractors: list[Accuracy]
    skipped: int
    """Marked words left out, since one of the two forms is not in the vocabulary."""

    def plain(self) -> dict[str, Any]:
        return jsonable(self)


@dataclass(frozen=True)
class Excess:
    tokens: int
    """Words, and the end of each document."""
    loss: float
    """The model's nats for each of these, whatever its own tokens are."""
    best: float
    """The same for the true distribution: no model can expect less."""
    entropy: float
    """What `best` tends to with more documents."""
    excess: float
    """loss - best, on the same documents: the luck of the sample cancels out."""
    relative: float
    """The excess as a share of `best`."""

    def plain(self) -> dict[str, Any]:
        return jsonable(self)


@dataclass(frozen=True)
class Comparison:
    excess: Excess | None
    """None for a model that sees both sides: the best possible loss is that of reading from left to right."""
    by_distance: list[Loss]
    """Empty for the same models."""
    agreement: Agreement | None
    """None for languages that mark no words."""

    def plain(self) -> dict[str, Any]:
        return jsonable(self)


def excess(likelihood: Likelihood, language: Language, documents: Iterable[Document]) -> Excess:
    """How far a score is from the best possible one on the same documents; for models with any tokens."""
    tokens, best = 0, 0.0
    for document in documents:
        truth = language.log_probs(document.text.split())
        tokens += len(truth)
        best -= sum(truth)
    return _excess(likelihood.nats, best, tokens, language)


def compare(model: Any, tokenizer: Any, language: Language, documents: Iterable[Document]) -> Comparison:
    """The excess, and what happens at marked words; each document is read on its own. One token for each word only."""
    tokens, nats, best = 0, 0.0, 0.0
    at_marks: dict[int, list[tuple[float, float]]] = defaultdict(list)
    tally = _Tally()
    for reading in read(model, tokenizer, documents):
        truth = language.log_probs(reading.words)
        tokens += len(truth)
        nats -= sum(reading.log_probs)
        best -= sum(truth)
        for mark in reading.document.marks:
            at_marks[mark.distance].append((-reading.log_probs[mark.word], -truth[mark.word]))
        tally.add(reading)
    by_distance = []
    for distance, pairs in sorted(at_marks.items()):
        own, true = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
        by_distance.append(Loss(distance, own, true, len(pairs)))
    agreement = tally.result() if tally.met else None
    if prediction_of(model) != "left-to-right":
        return Comparison(None, [], agreement)
    return Comparison(_excess(nats, best, tokens, language), by_distance, agreement)


def _excess(nats: float, best: float, tokens: int, language: Language) -> Excess:
    if not tokens:
        raise DataError("there is no document to compare on")
    return Excess(
        tokens=tokens,
        loss=nats / tokens,
        best=best / tokens,
        entropy=language.entropy,
        excess=(nats - best) / tokens,
        relative=(nats - best) / best if best else math.inf,
    )


def agreement(model: Any, tokenizer: Any, documents: Iterable[Document]) -> Agreement:
    """At each marked word, given all that the model may see: is the right form more probable than the wrong one?"""
    tally = _Tally()
    for reading in read(model, tokenizer, documents):
        tally.add(reading)
    return tally.result()


class _Tally:
    """Which marked words were right."""

    def __init__(self) -> None:
        self.met: list[tuple[int, int, bool]] = []  # distance, attractors, right
        self.skipped = 0

    def add(self, reading: WordProbabilities) -> None:
        for mark, wrong in zip(reading.document.marks, reading.wrong, strict=True):
            if wrong is None:
                self.skipped += 1
            else:
                self.met.append((mark.distance, mark.attractors, reading.log_probs[mark.word] > wrong))

    def result(self) -> Agreement:
        if not self.met:
            found = f"{self.skipped} marked words, none of them in the vocabulary" if self.skipped else "no marked word"
            raise DataError(f"{found}: agreement cannot be measured", remedy="use a language that marks words")
        right = sum(was_right for *_, was_right in self.met)
        return Agreement(right / len(self.met), len(self.met), self._by(0), self._by(1), self.skipped)

    def _by(self, key: int) -> list[Accuracy]:
        groups: dict[int, list[bool]] = defaultdict(list)
        for entry in self.met:
            groups[entry[key]].append(entry[2])
        return [Accuracy(value, sum(rights) / len(rights), len(rights)) for value, rights in sorted(groups.items())]
