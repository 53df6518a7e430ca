"""Confidence intervals: width and coverage as in theory; paired tests."""

import numpy as np
import pytest

from elman.evaluation.classification import label_counts, macro_f1
from elman.evaluation.significance import (
    MAX_UNITS,
    bootstrap_interval,
    paired_difference,
    paired_scores,
    resample_interval,
    share_interval,
    student_quantile,
)


def test_the_interval_of_a_mean_is_as_wide_as_theory_says():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    low, high = bootstrap_interval(values, samples=4000)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(400), rel=0.06)


def test_many_units_give_the_same_interval_as_theory_at_no_more_cost():
    random = np.random.default_rng(2)
    sizes = np.sort(random.integers(1, 30, 50_000))[::-1]
    nats = sizes * (sizes / 30 + random.normal(2.0, 0.5, 50_000))  # documents of like size lie together and are alike
    low, high = bootstrap_interval(nats, sizes)
    ratio = nats.sum() / sizes.sum()
    deviation = np.sqrt(((nats - ratio * sizes) ** 2).sum()) / sizes.sum()
    assert low < ratio < high
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_bootstrap_intervals_have_nominal_coverage():
    random = np.random.default_rng(3)
    intervals = [bootstrap_interval(random.exponential(1.0, 60), level=0.9, samples=300, seed=s) for s in range(300)]
    covered = np.mean([low < 1.0 < high for low, high in intervals])
    assert 0.82 < covered < 0.95


def test_equal_units_give_a_zero_width_interval_and_seeds_reproduce():
    assert bootstrap_interval(np.arange(1.0, 13), 2 * np.arange(1, 13)) == (0.5, 0.5)
    assert bootstrap_interval(np.arange(12) ** 2, seed=1) == bootstrap_interval(np.arange(12) ** 2, seed=1)


def test_fewer_than_ten_units_give_no_interval_and_no_test():
    units = np.random.default_rng(5).normal(size=(9, 2)) + 4
    assert bootstrap_interval(*units.T) is resample_interval(units, ratio) is None
    for found in (paired_difference(*units.T), paired_scores(units, units + 1, ratio)):
        assert found.interval is found.p_value is None
        assert np.isfinite(found.difference)


@pytest.mark.slow
@pytest.mark.parametrize("units", [10, 16])
def test_intervals_of_few_units_have_nominal_coverage_and_tests_their_level(units):
    """Of means, of functions of sums, and of differences, which exclude 0 where p < 0.05. Catches: percentiles as they
    are, which hold the mean of ten in 88 % of cases."""
    random, trials = np.random.default_rng(units), 500
    held = np.zeros(3)
    for _ in range(trials):
        pairs = np.stack([random.normal(2.0, 1.0, units), np.ones(units)], axis=1)
        change = paired_difference(pairs[:, 0], pairs[:, 0] + random.normal(0.0, 1.0, units), samples=1000)
        assert (change.interval[0] <= 0 <= change.interval[1]) == (change.p_value >= 0.05) or (
            0.04 < change.p_value < 0.06  # where an interval's end and a share of samples may differ by one sample
        )
        means = [bootstrap_interval(*pairs.T), resample_interval(pairs, ratio)]
        held += [*(low <= 2 <= high for low, high in means), change.interval[0] <= 0 <= change.interval[1]]
    assert (np.abs(held / trials - 0.95) < 0.025).all(), held / trials


@pytest.mark.parametrize(("freedom", "edge"), [(1, 12.706), (9, 2.262), (4095, 1.9606)])
def test_quantiles_of_students_distribution_are_those_of_tables(freedom, edge):
    assert student_quantile(0.95, freedom) == pytest.approx(edge, rel=1e-3)


def test_higher_confidence_is_wider():
    values = np.arange(50.0)
    narrow, wide = (bootstrap_interval(values, level=level) for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def ratio(sums):
    return sums[:, 0] / sums[:, 1]


@pytest.mark.slow
def test_paired_test_of_sums_equals_that_of_a_ratio():
    """Catches: other draws for the second model, as if the two were not paired."""
    random = np.random.default_rng(4)
    sizes = random.integers(1, 9, 300).astype(float)
    first = random.binomial(sizes.astype(int), 0.6).astype(float)
    second = np.minimum(first + (random.random(300) < 0.06), sizes)
    plain = paired_difference(first, second, sizes)
    sums = paired_scores(np.stack([first, sizes], 1), np.stack([second, sizes], 1), ratio)
    assert sums.difference == pytest.approx(plain.difference)
    assert sums.interval == pytest.approx(plain.interval, rel=0.1)
    many = [np.repeat(np.stack([part, sizes], 1), MAX_UNITS // 100, axis=0) for part in (first, second)]
    assert paired_scores(*many, ratio).difference == pytest.approx(plain.difference)


@pytest.mark.parametrize("samples", [9, 10_000])
def test_p_values_are_above_zero_and_at_most_one(samples):
    """Catches: the share of draws alone, which is 0."""
    ones, zeros = np.ones(50), np.zeros(50)
    stats = pytest.importorskip("scipy.stats")
    least = 2 * stats.t.sf(stats.norm.isf(1 / (samples + 1)) * (49 / 50) ** 0.5, 49)
    assert paired_difference(zeros, ones, samples=samples).p_value == pytest.approx(least, rel=1e-4)
    both = [np.stack([part, ones], 1) for part in (zeros, ones)]
    assert paired_scores(*both, ratio, samples=samples).p_value == pytest.approx(least, rel=1e-4)
    assert paired_difference(ones, ones, samples=samples).p_value == 1


def test_mean_f1_is_compared_label_by_label():
    """Catches: true labels counted as answers."""
    truth = np.eye(2)[[0] * 90 + [1] * 10]
    lazy = np.eye(2)[[0] * 100]  # right nine times of ten, and never on the rare label
    found = paired_scores(label_counts(lazy, truth), label_counts(truth, truth), macro_f1)
    assert found.difference == pytest.approx(1 - (2 * 90 / 190) / 2)
    assert found.p_value < 0.001


@pytest.mark.parametrize("truth", [0.5, 0.9, 0.98])
def test_wilson_intervals_have_coverage_for_extreme_shares(truth: float) -> None:
    """Catches: drawing anew, which holds 0.98 in two of three samples of fifty."""
    random = np.random.default_rng(0)
    held = 0
    for _ in range(500):
        low, high = share_interval(random.random(50) < truth)
        held += low <= truth <= high
    assert held >= 0.92 * 500
    assert share_interval(np.ones(500)) == pytest.approx((0.9924, 1.0), abs=1e-4)
    assert share_interval(np.zeros(500)) == pytest.approx((0.0, 0.0076), abs=1e-4)


@pytest.mark.parametrize("right", [0, 1])
def test_wilson_intervals_contain_the_share_despite_rounding(right: int) -> None:
    """Catches: 0.9999999999999999 as the end of an interval around 1."""
    for count in range(1, 600):
        low, high = share_interval(np.full(count, right))
        assert 0 <= low <= right <= high <= 1
