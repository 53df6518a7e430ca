"""Classification metrics against their definitions, and against scikit-learn if installed."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.errors import DataError
from elman.evaluation import bootstrap_interval, resample_interval, score_label_sets, score_labels
from elman.evaluation.classification import BINS, calibration_error, macro_f1, never_answered

SIZES = {"texts": st.integers(1, 40), "labels": st.integers(2, 5), "seed": st.integers(0, 999)}


def drawn(texts: int, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities better than chance, and true labels, some of which may not occur."""
    dice = np.random.default_rng(seed)
    truth = dice.integers(0, labels, texts)
    scores = np.exp(dice.normal(size=(texts, labels)) + 1.5 * np.eye(labels)[truth])
    return scores / scores.sum(axis=1, keepdims=True), truth


def f1(both: int, said: int, true: int) -> tuple[float, float, float]:
    """Precision, recall, and their harmonic mean."""
    precision, recall = both / said if said else 0.0, both / true if true else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0


def expected_calibration(chances: list[float], right: list[bool]) -> float:
    total = 0.0
    for number in range(BINS):
        inside = [place for place, p in enumerate(chances) if number / BINS < p <= (number + 1) / BINS]
        if inside:
            confidence = sum(chances[place] for place in inside) / len(inside)
            total += len(inside) * abs(confidence - sum(right[place] for place in inside) / len(inside))
    return total / len(chances)


def test_the_baseline_is_the_most_frequent_answer():
    chances = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.6, 0.4, 0.0]])
    assert score_labels(chances, [0, 0, 0, 2], ["a", "b", "c"]).baseline_accuracy == 0.75
    sets = [[1, 0, 1], [1, 0, 0], [1, 0, 1], [0, 0, 0]]
    assert score_label_sets(chances, sets, ["a", "b", "c"]).baseline_accuracy == 0.5


def test_labels_that_are_never_answered_are_named():
    """Catches labels that no text has, or that are answered wrongly only."""
    assert never_answered({"a": 3, "b": 1, "c": 2}, {"a": 5, "c": 1}) == ["never answered: b (1 of 6)"]
    assert never_answered({"a": 3}, {"a": 1, "b": 2}) == []
    many = never_answered({str(number): number for number in range(1, 30)}, {})
    assert many[0].endswith("and 19 more")
    assert "29 (29 of 435), 28" in many[0]


@given(**SIZES)
def test_scores_of_single_labels_are_those_of_the_definitions(texts, labels, seed):
    """Catches rows and columns of the confusion exchanged, labels that do not occur counted in the mean,
    precision for recall, and bins by rounding."""
    chances, truth = drawn(texts, labels, seed)
    names = [f"label {number}" for number in range(labels)]
    result = score_labels(chances, truth, names)
    answers = [max(range(labels), key=row.__getitem__) for row in chances]
    pairs = Counter(zip(truth.tolist(), answers, strict=True))
    assert result.confusion == [[pairs[true, said] for said in range(labels)] for true in range(labels)]
    assert result.accuracy == pytest.approx(sum(a == b for a, b in zip(truth, answers, strict=True)) / texts)
    scores = []
    for number, row in enumerate(result.per_label):
        said, true = answers.count(number), truth.tolist().count(number)
        expected = f1(pairs[number, number], said, true)
        assert (row.label, row.examples) == (names[number], true)
        assert (row.precision, row.recall, row.f1) == pytest.approx(expected)
        scores += [expected[2]] if said + true else []
    assert result.macro_f1 == pytest.approx(sum(scores) / len(scores))
    assert result.loss == pytest.approx(-sum(math.log(chances[k, truth[k]]) for k in range(texts)) / texts)
    right = [a == b for a, b in zip(truth, answers, strict=True)]
    assert result.calibration_error == pytest.approx(expected_calibration(chances.max(1).tolist(), right))
    assert result.accuracy_interval[0] <= result.accuracy <= result.accuracy_interval[1]


@given(**SIZES)
def test_scores_of_several_labels_are_those_of_the_definitions(texts, labels, seed):
    """Catches micro and macro exchanged, and with the threshold left out."""
    dice = np.random.default_rng(seed)
    chances, truth = dice.random((texts, labels)), dice.integers(0, 2, (texts, labels))
    result = score_label_sets(chances, truth, [str(number) for number in range(labels)], threshold=0.4)
    answers = chances > 0.4
    by_label = []
    for number, row in enumerate(result.per_label):
        said, true = answers[:, number], truth[:, number] == 1
        expected = f1(int((said & true).sum()), int(said.sum()), int(true.sum()))
        assert (row.precision, row.recall, row.f1) == pytest.approx(expected)
        by_label.append(expected[2])
    assert result.macro_f1 == pytest.approx(sum(by_label) / len(by_label))
    both, said, true = (int(part.sum()) for part in (answers & (truth == 1), answers, truth))
    assert result.micro_f1 == pytest.approx(f1(both, said, true)[2])
    exact = [all(said == true) for said, true in zip(answers, truth, strict=True)]
    assert result.accuracy == pytest.approx(sum(exact) / texts)
    nats = -np.log(np.where(truth == 1, chances, 1 - chances)).sum() / texts
    assert result.loss == pytest.approx(nats)
    assert result.calibration_error == pytest.approx(
        expected_calibration(chances.ravel().tolist(), truth.ravel().tolist())
    )


@pytest.mark.slow
@given(**SIZES)
def test_scores_agree_with_scikit_learn(texts, labels, seed):
    metrics = pytest.importorskip("sklearn.metrics")
    chances, truth = drawn(texts, labels, seed)
    result, answers = score_labels(chances, truth, [""] * labels), chances.argmax(1)
    assert result.accuracy == pytest.approx(metrics.accuracy_score(truth, answers))
    assert result.macro_f1 == pytest.approx(metrics.f1_score(truth, answers, average="macro", zero_division=0))
    assert result.confusion == metrics.confusion_matrix(truth, answers, labels=range(labels)).tolist()
    sets = np.eye(labels)[truth]
    several = score_label_sets(chances, sets, [str(number) for number in range(labels)], threshold=0.4)
    for average in ("macro", "micro"):
        expected = metrics.f1_score(sets, chances > 0.4, average=average, zero_division=0)
        assert getattr(several, f"{average}_f1") == pytest.approx(expected)


def test_calibration_error_detects_overconfidence():
    dice = np.random.default_rng(0)
    chances = dice.random(200_000)
    right = dice.random(200_000) < chances
    assert calibration_error(chances, right) < 0.01
    assert calibration_error(np.ones(4), [True, True, False, False]) == 0.5
    assert calibration_error([0.0], [False]) == 0


@pytest.mark.slow
def test_intervals_narrow_with_more_texts_and_repeat_exactly():
    widths = []
    for texts in (50, 500, 20_000):
        result = score_labels(*drawn(texts, 3, 1), ["a", "b", "c"])
        again = score_labels(*drawn(texts, 3, 1), ["a", "b", "c"])
        assert result == again
        low, high = result.macro_f1_interval
        assert low < result.macro_f1 < high
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 6 * widths[2]


@pytest.mark.slow
def test_resampled_sums_give_the_interval_of_a_mean():
    """For a score that is a mean, both ways must agree. Catches groups drawn but not weighed."""
    for units in (300, 30_000):
        values = np.random.default_rng(2).normal(size=units)
        parts = np.stack([values, np.ones(units)], axis=1)
        mean = resample_interval(parts, lambda sums: sums[:, 0] / sums[:, 1], samples=2000)
        np.testing.assert_allclose(mean, bootstrap_interval(values, samples=2000), atol=0.12 / units**0.5)


@pytest.mark.slow
def test_intervals_have_nominal_coverage():
    """Macro F1 of a huge sample is the truth; 95 % intervals of small ones should hold it in most of 100 trials."""
    truth = score_labels(*drawn(200_000, 3, 5), ["a", "b", "c"]).macro_f1
    held = 0
    for seed in range(100):
        low, high = score_labels(*drawn(200, 3, 1000 + seed), ["a", "b", "c"]).macro_f1_interval
        held += low <= truth <= high
    assert 86 <= held <= 100


def test_a_result_is_json():
    single = score_labels(*drawn(9, 2, 0), ["no", "yes"]).plain()
    assert json.loads(json.dumps(single)) == single
    assert {"accuracy", "macro_f1", "per_label", "confusion", "calibration_error"} <= single.keys()
    several = score_label_sets(np.eye(2), np.eye(2), ["a", "b"]).plain()
    assert json.loads(json.dumps(several)) == several
    assert several["micro_f1"] == several["macro_f1"] == several["accuracy"] == 1


def test_empty_input_is_an_error_and_absent_labels_score_zero():
    with pytest.raises(DataError, match="no labelled text"):
        score_labels(np.zeros((0, 2)), [], ["a", "b"])
    nothing = score_label_sets(np.zeros((3, 2)), np.zeros((3, 2)), ["a", "b"])
    assert (nothing.accuracy, nothing.micro_f1, nothing.macro_f1, nothing.loss) == (1, 0, 0, 0)
    assert macro_f1(np.zeros((2, 6))).tolist() == [0, 0]
