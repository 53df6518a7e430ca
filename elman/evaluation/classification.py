"""Classification metrics: accuracy, F1, confusion matrix and calibration error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elman.errors import DataError
from elman.evaluation.significance import Array, Interval, Statistic, estimate, share_interval
from elman.jsonable import Result

NAMED = 10  # labels in a note
BINS = 15  # equally wide bins of confidence (Guo et al., 2017)


class PerLabel(NamedTuple):
    label: str
    precision: float
    recall: float
    f1: float
    examples: int
    """Support: texts with this true label."""


@dataclass(frozen=True)
class Classification(Result):
    """Single-label classification. Undefined ratios (labels never predicted or never true) are 0."""

    accuracy: float
    accuracy_interval: Interval
    """95 % confidence interval, like the next one."""
    baseline_accuracy: float
    """Accuracy of always answering the most frequent label of these texts."""
    macro_f1: float
    """Mean F1 of the labels that occur or are predicted: rare labels count as much as frequent ones."""
    macro_f1_interval: Interval | None
    loss: float
    """Mean cross-entropy in nats."""
    calibration_error: float
    """Expected calibration error: mean |confidence - accuracy| over bins of confidence."""
    examples: int
    per_label: list[PerLabel]
    confusion: list[list[int]]
    """Confusion matrix: true label (rows) by predicted label (columns), in the order of `per_label`."""


@dataclass(frozen=True)
class MultiLabel(Result):
    """Multi-label classification: labels with a probability above the threshold are predicted."""

    accuracy: float
    """Subset accuracy: share of texts with exactly the right labels."""
    accuracy_interval: Interval
    baseline_accuracy: float
    """Accuracy of always answering the most frequent set of labels of these texts."""
    micro_f1: float
    """F1 over all (text, label) decisions."""
    micro_f1_interval: Interval | None
    macro_f1: float
    """Mean F1 of all labels; 0 for one that is neither true nor predicted anywhere, as in scikit-learn."""
    macro_f1_interval: Interval | None
    loss: float
    """Binary cross-entropy in nats, summed over labels, mean over texts."""
    calibration_error: float
    """Over all (text, label) decisions."""
    threshold: float
    examples: int
    per_label: list[PerLabel]


def score_labels(probabilities: ArrayLike, truth: ArrayLike, names: Sequence[str]) -> Classification:
    """Metrics of probabilities (texts, labels) against indices of the true labels (texts,)."""
    chances, right = _checked(probabilities, names), np.asarray(truth, dtype=np.int64)
    assert right.shape == (len(chances),), "one true label per text"
    assert ((right >= 0) & (right < len(names))).all(), "true labels are indices into names"
    answers, size = chances.argmax(axis=1), len(names)
    hits = answers == right
    counts = label_counts(_one_hot(answers, size), _one_hot(right, size))
    return Classification(
        **_common_scores(hits, counts, names, macro_f1),
        baseline_accuracy=float(np.bincount(right).max() / len(right)),
        loss=float(_nats(chances[np.arange(len(right)), right]).mean()),
        calibration_error=calibration_error(chances.max(axis=1), hits),
        confusion=np.bincount(right * size + answers, minlength=size * size).reshape(size, size).tolist(),
    )


def score_label_sets(
    probabilities: ArrayLike, truth: ArrayLike, names: Sequence[str], threshold: float = 0.5
) -> MultiLabel:
    """Metrics of probabilities (texts, labels) against true labels as a 0/1 matrix (texts, labels)."""
    chances, right = _checked(probabilities, names), np.asarray(truth).astype(bool)
    assert right.shape == chances.shape, "0 or 1 for each text and label"
    answers = chances > threshold
    counts = label_counts(answers, right)
    micro, micro_interval = estimate(counts, micro_f1)
    return MultiLabel(
        **_common_scores((answers == right).all(axis=1), counts, names, macro_f1_of_all),
        baseline_accuracy=float(np.unique(right, axis=0, return_counts=True)[1].max() / len(right)),
        micro_f1=micro,
        micro_f1_interval=micro_interval,
        loss=float(_nats(np.where(right, chances, 1 - chances)).sum(axis=1).mean()),
        calibration_error=calibration_error(chances, right),
        threshold=threshold,
    )


def _common_scores(
    hits: NDArray[np.bool_], counts: NDArray[np.bool_], names: Sequence[str], mean_f1: Statistic
) -> dict[str, Any]:
    macro, macro_interval = estimate(counts, mean_f1)
    true_positives, predicted, true = np.split(counts.sum(axis=0, dtype=np.float64), 3)
    f1 = _ratio(2 * true_positives, predicted + true)
    columns = _ratio(true_positives, predicted), _ratio(true_positives, true), f1, true.astype(int)
    return {
        "accuracy": float(hits.mean()),
        "accuracy_interval": share_interval(hits),
        "macro_f1": macro,
        "macro_f1_interval": macro_interval,
        "examples": len(hits),
        "per_label": [PerLabel(*row) for row in zip(names, *(column.tolist() for column in columns), strict=True)],
    }


def label_counts(answers: ArrayLike, truth: ArrayLike) -> NDArray[np.bool_]:
    """Per-text counts (texts, 3 · labels) that sum to those of F1, from 0/1 matrices of predicted and true labels: true
    positives, predicted and true labels."""
    predicted, true = np.asarray(answers).astype(bool), np.asarray(truth).astype(bool)
    return np.concatenate([predicted & true, predicted, true], axis=1)


def never_answered(true: Mapping[str, int], answered: Mapping[str, int]) -> list[str]:
    """A note on the labels that occur but are never answered, the most frequent first; none if there are none."""
    missed = sorted((name for name in true if true[name] and not answered.get(name)), key=lambda name: -true[name])
    total, more = sum(true.values()), f" and {len(missed) - NAMED} more" if len(missed) > NAMED else ""
    shown = ", ".join(f"{name} ({true[name]} of {total})" for name in missed[:NAMED])
    return [f"never answered: {shown}{more}"] if missed else []


def calibration_error(confidence: ArrayLike, right: ArrayLike) -> float:
    """Expected calibration error (Naeini et al., 2015): |confidence - accuracy| of each bin, weighted by its size."""
    chances, hits = np.asarray(confidence, dtype=np.float64).ravel(), np.asarray(right, dtype=np.float64).ravel()
    index = np.clip(np.ceil(chances * BINS).astype(np.int64) - 1, 0, BINS - 1)  # bins include their upper edge
    return float(np.abs(np.bincount(index, chances - hits, minlength=BINS)).sum() / len(chances))


def macro_f1(sums: Array) -> Array:
    """Macro F1 (samples,) of the labels that are true or predicted somewhere, from sums (samples, 3 · labels): true
    positives, predicted and true labels."""
    _, predicted, true = np.split(sums, 3, axis=1)
    return _ratio(_f1_of_each(sums).sum(axis=1), ((predicted + true) > 0).sum(axis=1))


def macro_f1_of_all(sums: Array) -> Array:
    """Macro F1 (samples,) of all labels, from the same sums."""
    return _f1_of_each(sums).mean(axis=1)


def _f1_of_each(sums: Array) -> Array:
    hits, predicted, true = np.split(sums, 3, axis=1)
    return _ratio(2 * hits, predicted + true)


def micro_f1(sums: Array) -> Array:
    """Micro F1 (samples,) from the same sums."""
    hits, predicted, true = (part.sum(axis=1) for part in np.split(sums, 3, axis=1))
    return _ratio(2 * hits, predicted + true)


def _checked(probabilities: ArrayLike, names: Sequence[str]) -> Array:
    chances = np.asarray(probabilities, dtype=np.float64)
    if not len(chances):
        raise DataError("no labelled text to evaluate on")
    assert chances.shape == (len(chances), len(names)), "one probability for each text and label"
    return chances


def _one_hot(numbers: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    return numbers[:, None] == np.arange(size)


def _nats(chances: Array) -> Array:
    return -np.log(np.maximum(chances, np.finfo(np.float64).tiny))


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros_like(part, dtype=np.float64), where=whole > 0)
