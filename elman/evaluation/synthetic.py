"""Comparison with the true distribution of a synthetic language: excess loss, and subject-verb agreement."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from elman.corpus.document import Document
from elman.errors import DataError
from elman.evaluation.likelihood import Likelihood
from elman.evaluation.word_probabilities import WordProbabilities, word_probabilities
from elman.jsonable import Result
from elman.models import prediction_of


class Language(Protocol):
    @property
    def entropy(self) -> float: ...  # nats per token, including the end of a document
    def log_probs(self, words: Sequence[str]) -> list[float]: ...  # of each word and of the end, in nats


class Accuracy(NamedTuple):
    """Share of marked words whose right form is more probable than the wrong one, among those with equal `value`."""

    value: int  # the distance, or the number of attractors
    accuracy: float
    words: int


class Loss(NamedTuple):
    """Nats at marked words at an equal distance from the word that decides their form."""

    distance: int
    loss: float
    best: float
    words: int


@dataclass(frozen=True)
class Agreement(Result):
    accuracy: float
    words: int
    by_distance: list[Accuracy]
    by_attractors: list[Accuracy]
    skipped: int
    """Marked words with a form that is not in the vocabulary."""


@dataclass(frozen=True)
class Excess(Result):
    tokens: int
    """Words, plus the end of each document."""
    loss: float
    """Nats of the model per word or end, whatever its own tokens are."""
    best: float
    """Nats of the true distribution: no model can have less in expectation."""
    entropy: float
    """Limit of `best` for many documents."""
    excess: float
    """loss - best on the same documents, which cancels sampling noise."""
    relative: float
    """excess / best."""


@dataclass(frozen=True)
class Comparison(Result):
    excess: Excess | None
    """None for a bidirectional model: the true distribution is left-to-right."""
    by_distance: list[Loss]
    """Empty for a bidirectional model."""
    agreement: Agreement | None
    """None for languages without marked words."""


def excess(likelihood: Likelihood, language: Language, documents: Iterable[Document]) -> Excess:
    """Excess of a likelihood over the true distribution on the same documents; works with any tokenizer."""
    tokens, best = 0, 0.0
    for document in documents:
        truth = language.log_probs(document.text.split())
        tokens += len(truth)
        best -= sum(truth)
    return _excess(likelihood.nats, best, tokens, language)


def compare(model: Any, tokenizer: Any, language: Language, documents: Iterable[Document]) -> Comparison:
    """Excess, loss at marked words, and agreement; documents are independent. Needs a word tokenizer."""
    tokens, nats, best = 0, 0.0, 0.0
    at_marks: dict[int, list[tuple[float, float]]] = defaultdict(list)
    tally = _Tally()
    for scored in word_probabilities(model, tokenizer, documents):
        truth = language.log_probs(scored.words)
        tokens += len(truth)
        nats -= sum(scored.log_probs)
        best -= sum(truth)
        for mark in scored.document.marks:
            at_marks[mark.distance].append((-scored.log_probs[mark.word], -truth[mark.word]))
        tally.add(scored)
    by_distance = []
    for distance, pairs in sorted(at_marks.items()):
        own, true = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
        by_distance.append(Loss(distance, own, true, len(pairs)))
    agreement = tally.result() if tally.marked else None
    if prediction_of(model) != "left-to-right":
        return Comparison(None, [], agreement)
    return Comparison(_excess(nats, best, tokens, language), by_distance, agreement)


def _excess(nats: float, best: float, tokens: int, language: Language) -> Excess:
    if not tokens:
        raise DataError("no documents to compare on")
    return Excess(
        tokens=tokens,
        loss=nats / tokens,
        best=best / tokens,
        entropy=language.entropy,
        excess=(nats - best) / tokens,
        relative=(nats - best) / best if best else math.inf,
    )


def agreement(model: Any, tokenizer: Any, documents: Iterable[Document]) -> Agreement:
    """Agreement accuracy: at each marked word, is the right form more probable than the wrong one?"""
    tally = _Tally()
    for scored in word_probabilities(model, tokenizer, documents):
        tally.add(scored)
    return tally.result()


class _Tally:
    """Counts right and wrong marked words."""

    def __init__(self) -> None:
        self.marked: list[tuple[int, int, bool]] = []  # distance, attractors, right
        self.skipped = 0

    def add(self, scored: WordProbabilities) -> None:
        for mark, wrong in zip(scored.document.marks, scored.wrong, strict=True):
            if wrong is None:
                self.skipped += 1
            else:
                self.marked.append((mark.distance, mark.attractors, scored.log_probs[mark.word] > wrong))

    def result(self) -> Agreement:
        if not self.marked:
            none_known = f"{self.skipped} marked words, none of them in the vocabulary"
            problem = none_known if self.skipped else "no marked word"
            raise DataError(f"{problem}: agreement cannot be measured", remedy="use a language that marks words")
        right = sum(was_right for *_, was_right in self.marked)
        return Agreement(right / len(self.marked), len(self.marked), self._by(0), self._by(1), self.skipped)

    def _by(self, key: int) -> list[Accuracy]:
        groups: dict[int, list[bool]] = defaultdict(list)
        for entry in self.marked:
            groups[entry[key]].append(entry[2])
        return [Accuracy(value, sum(rights) / len(rights), len(rights)) for value, rights in sorted(groups.items())]
