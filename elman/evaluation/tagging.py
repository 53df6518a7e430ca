"""Tagging metrics: accuracy, and entity-level precision, recall and F1 as in the CoNLL scorer.

An entity is correct if its first word, its last word and its type match.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.corpus.tags import entities
from elman.errors import DataError
from elman.evaluation.significance import Interval, bootstrap_interval


class Counts(NamedTuple):
    """Numbers of true, predicted and correctly predicted entities."""

    gold: int = 0
    found: int = 0
    correct: int = 0

    @property
    def precision(self) -> float:
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.correct / (self.gold + self.found) if self.correct else 0.0


@dataclass(frozen=True)
class TaggingScore:
    """Metrics of a test set. `intervals` are bootstrap intervals over sentences, by metric; none of few sentences."""

    sentences: int
    words: int
    right: int
    entities: Counts
    types: Mapping[str, Counts]  # entities of each type, by name
    intervals: Mapping[str, Interval | None] = field(default_factory=dict)
    by_sentence: Sequence[Counts] = ()

    @property
    def accuracy(self) -> float:
        return self.right / self.words if self.words else 0.0

    def table(self) -> list[tuple[str, float, float, float, int]]:
        """Type, precision, recall, F1 and predicted entities, as printed by the CoNLL scorer, all types first."""
        lines = {"": self.entities, **self.types}
        return [(name, part.precision, part.recall, part.f1, part.found) for name, part in lines.items()]


def score_tags(
    gold: Iterable[Sequence[str]], found: Iterable[Sequence[str]], samples: int = 1000, seed: int = 0
) -> TaggingScore:
    """Compares tags sentence by sentence. Intervals resample sentences, because errors within one are correlated."""
    words, right, counts = [], [], []
    types: dict[str, Counts] = {}
    gold, found = list(gold), list(found)
    if len(gold) != len(found):
        raise DataError("the numbers of tagged and reference sentences differ")
    for number, (true, guess) in enumerate(zip(gold, found, strict=True), start=1):
        if len(true) != len(guess):
            raise DataError(f"sentence {number} has {len(true)} words, but {len(guess)} predicted tags")
        words.append(len(true))
        right.append(sum(one == other for one, other in zip(true, guess, strict=True)))
        expected, predicted = set(entities(true)), set(entities(guess))
        counts.append(Counts(len(expected), len(predicted), len(expected & predicted)))
        parts = [Counter(entity.type for entity in part) for part in (expected, predicted, expected & predicted)]
        for name in {*parts[0], *parts[1]}:
            types[name] = Counts(*np.add(types.get(name, Counts()), [part[name] for part in parts]).tolist())
    total = np.array(counts or [Counts()])
    ratios = {
        "accuracy": (np.array(right), np.array(words)),
        "precision": (total[:, 2], total[:, 1]),
        "recall": (total[:, 2], total[:, 0]),
        "f1": (2 * total[:, 2], total[:, 0] + total[:, 1]),
    }
    draws: dict[str, Any] = {"samples": samples, "seed": seed}
    intervals = {name: bootstrap_interval(*ratio, **draws) for name, ratio in ratios.items() if sum(ratio[1])}
    sums = Counts(*total.sum(0).tolist())
    return TaggingScore(len(words), sum(words), sum(right), sums, dict(sorted(types.items())), intervals, counts)


def entity_f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 (samples,) from sums (samples, 3) of true, predicted and correctly predicted entities."""
    gold, found, correct = sums.T
    return np.divide(2 * correct, gold + found, out=np.zeros(len(sums)), where=gold + found > 0)
