"""Intervals: as wide as theory says where theory is simple."""

import numpy as np
import pytest

from elman.evaluation.significance import bootstrap_interval


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


def test_it_covers_the_truth_about_as_often_as_it_promises():
    random = np.random.default_rng(3)
    intervals = [bootstrap_interval(random.exponential(1.0, 60), level=0.9, samples=300, seed=s) for s in range(300)]
    covered = np.mean([low < 1.0 < high for low, high in intervals])
    assert 0.82 < covered < 0.95


def test_equal_units_leave_no_doubt_and_a_seed_repeats():
    assert bootstrap_interval([1.0, 2.0, 3.0], [2, 4, 6]) == (0.5, 0.5)
    assert bootstrap_interval([1, 2, 4], seed=1) == bootstrap_interval([1, 2, 4], seed=1)


def test_a_higher_level_is_wider():
    values = np.arange(50.0)
    narrow, wide = (bootstrap_interval(values, level=level) for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
