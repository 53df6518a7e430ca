"""How well sentences are tagged: accuracy, and precision, recall and F1 of entities as CoNLL's scorer counts them.

An entity counts if its first word, its last word and its type are right.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.corpus.entities import entities
from elman.errors import DataError
from elman.evaluation.significance import bootstrap_interval


class Counts(NamedTuple):
    """Entities that are there, that were found, and that were found right; what scores are made of."""

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
    """Of a whole test set. `intervals` has, for each score that is one, where it lies if sentences are drawn anew."""

    sentences: int
    words: int
    right: int
    entities: Counts
    types: Mapping[str, Counts]  # entities of each type, by name
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    by_sentence: Sequence[Counts] = ()

    @property
    def accuracy(self) -> float:
        return self.right / self.words if self.words else 0.0

    def table(self) -> list[tuple[str, float, float, float, int]]:
        """Type, precision, recall, F1 and entities found: the lines that CoNLL's scorer prints, all types first."""
        lines = {"": self.entities, **self.types}
        return [(name, part.precision, part.recall, part.f1, part.found) for name, part in lines.items()]


def judge_tags(
    gold: Iterable[Sequence[str]],
    found: Iterable[Sequence[str]],
    level: float = 0.95,
    samples: int = 1000,
    seed: int = 0,
) -> TaggingScore:
    """Compare tags sentence by sentence. Intervals are by sentence, since errors within one go together."""
    words, right, whole = [], [], []
    types: dict[str, Counts] = {}
    for number, (true, guess) in enumerate(_pairs(gold, found), start=1):
        if len(true) != len(guess):
            raise DataError(f"sentence {number} has {len(true)} words, but {len(guess)} tags were found for it")
        words.append(len(true))
        right.append(sum(one == other for one, other in zip(true, guess, strict=True)))
        there, said = set(entities(true)), set(entities(guess))
        whole.append(Counts(len(there), len(said), len(there & said)))
        parts = [Counter(entity.type for entity in part) for part in (there, said, there & said)]
        for name in {*parts[0], *parts[1]}:
            types[name] = Counts(*np.add(types.get(name, Counts()), [part[name] for part in parts]).tolist())
    total = np.array(whole or [Counts()])
    ratios = {
        "accuracy": (np.array(right), np.array(words)),
        "precision": (total[:, 2], total[:, 1]),
        "recall": (total[:, 2], total[:, 0]),
        "f1": (2 * total[:, 2], total[:, 0] + total[:, 1]),
    }
    intervals = {
        name: bootstrap_interval(part, size, level, samples, seed) for name, (part, size) in ratios.items() if sum(size)
    }
    sums = Counts(*total.sum(0).tolist())
    return TaggingScore(len(words), sum(words), sum(right), sums, dict(sorted(types.items())), intervals, whole)


def entity_f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 (samples,) by sums (samples, 3) of entities that are there, that were found, and that were found right."""
    there, found, correct = sums.T
    return np.divide(2 * correct, there + found, out=np.zeros(len(sums)), where=there + found > 0)


def _pairs(
    gold: Iterable[Sequence[str]], found: Iterable[Sequence[str]]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    try:
        yield from zip(gold, found, strict=True)
    except ValueError:
        raise DataError("not as many sentences were tagged as there are") from None
