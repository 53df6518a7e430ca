"""How well texts are classified: right answers, F1, who is taken for whom, and whether probabilities are honest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elman.errors import DataError
from elman.evaluation.jsonable import jsonable
from elman.evaluation.significance import resample_interval, share_interval

BINS = 15  # of confidence, equally wide (Guo et al., 2017)
Interval = tuple[float, float]
Array = NDArray[np.float64]


class PerLabel(NamedTuple):
    label: str
    precision: float
    recall: float
    f1: float
    examples: int
    """Texts that have this label."""


@dataclass(frozen=True)
class Classification:
    """Each text has one label. Undefined ratios, of labels never given or never true, are 0."""

    accuracy: float
    accuracy_interval: Interval
    """Where it would lie on other such texts (95 %), as the next one."""
    macro_f1: float
    """Mean of the labels' F1: rare labels count as much as frequent ones. Labels that neither occur nor are answered
    do not count."""
    macro_f1_interval: Interval
    loss: float
    """Nats of the true label, on average."""
    calibration_error: float
    """How far confidence is from accuracy, on average over texts, in bins of equal confidence."""
    examples: int
    per_label: list[PerLabel]
    confusion: list[list[int]]
    """Texts by true label (rows) and answer (columns), in the order of `per_label`."""

    def plain(self) -> dict[str, Any]:
        return jsonable(self)


@dataclass(frozen=True)
class MultiLabel:
    """Each text has any number of labels; those with a probability above the threshold are the answer."""

    accuracy: float
    """Texts with exactly the right labels."""
    accuracy_interval: Interval
    micro_f1: float
    """F1 over all decisions on texts and labels."""
    micro_f1_interval: Interval
    macro_f1: float
    macro_f1_interval: Interval
    loss: float
    """Nats of all labels of a text, there or not, on average over texts."""
    calibration_error: float
    """Over all decisions."""
    threshold: float
    examples: int
    per_label: list[PerLabel]

    def plain(self) -> dict[str, Any]:
        return jsonable(self)


def score_labels(probabilities: ArrayLike, truth: ArrayLike, names: Sequence[str]) -> Classification:
    """Judge probabilities (texts, labels) by the numbers of the true labels (texts,)."""
    chances, right = _given(probabilities, names), np.asarray(truth, dtype=np.int64)
    assert right.shape == (len(chances),), "one true label for each text"
    assert ((right >= 0) & (right < len(names))).all(), "true labels are numbers of names"
    answers, size = chances.argmax(axis=1), len(names)
    hits = answers == right
    counts = _Counts.of(_one_hot(answers, size), _one_hot(right, size))
    return Classification(
        accuracy=float(hits.mean()),
        accuracy_interval=share_interval(hits),
        macro_f1=counts.score(macro_f1),
        macro_f1_interval=resample_interval(counts.units, macro_f1),
        loss=float(_nats(chances[np.arange(len(right)), right]).mean()),
        calibration_error=calibration_error(chances.max(axis=1), hits),
        examples=len(right),
        per_label=counts.per_label(names),
        confusion=np.bincount(right * size + answers, minlength=size * size).reshape(size, size).tolist(),
    )


def score_label_sets(
    probabilities: ArrayLike, truth: ArrayLike, names: Sequence[str], threshold: float = 0.5
) -> MultiLabel:
    """Judge probabilities (texts, labels) by a one for each true label (texts, labels)."""
    chances, right = _given(probabilities, names), np.asarray(truth).astype(bool)
    assert right.shape == chances.shape, "a one or a zero for each text and label"
    answers = chances > threshold
    hits = (answers == right).all(axis=1)
    counts = _Counts.of(answers, right)
    return MultiLabel(
        accuracy=float(hits.mean()),
        accuracy_interval=share_interval(hits),
        micro_f1=counts.score(micro_f1),
        micro_f1_interval=resample_interval(counts.units, micro_f1),
        macro_f1=counts.score(macro_f1),
        macro_f1_interval=resample_interval(counts.units, macro_f1),
        loss=float(_nats(np.where(right, chances, 1 - chances)).sum(axis=1).mean()),
        calibration_error=calibration_error(chances, right),
        threshold=threshold,
        examples=len(right),
        per_label=counts.per_label(names),
    )


def label_counts(answers: ArrayLike, truth: ArrayLike) -> NDArray[np.bool_]:
    """What each text adds to the sums that F1 is made of, by a one for each label answered and each true one."""
    return _Counts.of(np.asarray(answers).astype(bool), np.asarray(truth).astype(bool)).units


def calibration_error(confidence: ArrayLike, right: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error (Naeini et al., 2015): |confidence - share that is right| of each bin, by its size."""
    chances, hits = np.asarray(confidence, dtype=np.float64).ravel(), np.asarray(right, dtype=np.float64).ravel()
    place = np.clip(np.ceil(chances * bins).astype(np.int64) - 1, 0, bins - 1)  # a bin holds its upper end
    return float(np.abs(np.bincount(place, chances - hits, minlength=bins)).sum() / len(chances))


def macro_f1(sums: Array) -> Array:
    """Mean of the labels' F1 (samples,), by sums (samples, 3 · labels) of right answers, answers and true labels."""
    both, said, true = np.split(sums, 3, axis=1)
    there = (said + true) > 0
    return _ratio(_ratio(2 * both, said + true).sum(axis=1), there.sum(axis=1))


def micro_f1(sums: Array) -> Array:
    """F1 over all labels together, by the same sums."""
    both, said, true = (part.sum(axis=1) for part in np.split(sums, 3, axis=1))
    return _ratio(2 * both, said + true)


class _Counts(NamedTuple):
    units: NDArray[np.bool_]  # (texts, 3 · labels): whether each label is answered rightly, answered, true

    @classmethod
    def of(cls, answers: NDArray[np.bool_], right: NDArray[np.bool_]) -> "_Counts":
        return cls(np.concatenate([answers & right, answers, right], axis=1))

    def sums(self) -> Array:
        return self.units.sum(axis=0, dtype=np.float64)

    def score(self, statistic: Callable[[Array], Array]) -> float:
        return float(statistic(self.sums()[None])[0])

    def per_label(self, names: Sequence[str]) -> list[PerLabel]:
        both, said, true = np.split(self.sums(), 3)
        columns = _ratio(both, said), _ratio(both, true), _ratio(2 * both, said + true), true.astype(int)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [PerLabel(name, *row) for name, row in zip(names, rows, strict=True)]


def _given(probabilities: ArrayLike, names: Sequence[str]) -> Array:
    chances = np.asarray(probabilities, dtype=np.float64)
    if not len(chances):
        raise DataError("no labelled text: there is nothing to judge by")
    assert chances.shape == (len(chances), len(names)), "a probability for each text and label"
    return chances


def _one_hot(numbers: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    return numbers[:, None] == np.arange(size)


def _nats(chances: Array) -> Array:
    return -np.log(np.maximum(chances, np.finfo(np.float64).tiny))


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros_like(part, dtype=np.float64), where=whole > 0)
