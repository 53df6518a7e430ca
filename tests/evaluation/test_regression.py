"""Regression metrics: by hand, against numpy, and in edge cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.errors import DataError
from elman.evaluation.regression import moments, pearson, rank, score_numbers

RANDOM = np.random.default_rng(1)
TRUTH = RANDOM.normal(500, 100, 400)
FOUND = TRUTH + RANDOM.normal(10, 50, 400)


def test_errors_by_hand():
    found = score_numbers([1, 2, 6], [1, 4, 3], baseline=2)
    assert (found.mse, found.mae, found.baseline_mse) == pytest.approx((13 / 3, 5 / 3, 2))
    assert found.r2 == pytest.approx(1 - 13 / (14 / 3))


def test_correlations_are_those_of_numpy():
    found = score_numbers(FOUND, TRUTH, baseline=0)
    assert found.pearson == pytest.approx(np.corrcoef(FOUND, TRUTH)[0, 1])
    order = [np.argsort(np.argsort(one)) for one in (FOUND, TRUTH)]  # no ties here
    assert found.spearman == pytest.approx(np.corrcoef(*order)[0, 1])
    assert found.r2 == pytest.approx(1 - found.mse / TRUTH.var())


def test_ties_share_the_mean_of_their_ranks():
    assert rank(np.array([3.0, 1, 3, 2])).tolist() == [3.5, 1, 3.5, 2]


def test_every_score_lies_in_its_interval_and_intervals_shrink_with_data():
    few, many = score_numbers(FOUND[:40], TRUTH[:40], 0).plain(), score_numbers(FOUND, TRUTH, 0).plain()
    for name in ("mse", "mae", "pearson", "spearman", "r2"):
        (low, high), (lower, higher) = many[f"{name}_interval"], few[f"{name}_interval"]
        assert low <= many[name] <= high
        assert high - low < higher - lower


@pytest.mark.slow
def test_correlation_intervals_have_nominal_coverage():
    """Of 95 % intervals; catches: a tenth of the spread."""
    random, held = np.random.default_rng(2), 0
    for _ in range(100):
        x = random.normal(size=200)
        low, high = score_numbers(0.6 * x + 0.8 * random.normal(size=200), x, 0).pearson_interval
        held += low <= 0.6 <= high
    assert held >= 85


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.floats(1e-3, 1e6), st.floats(-1e6, 1e6))
def test_correlations_are_scale_invariant(scale, shift):
    """Catches sums of numbers that are not centred."""
    plain, moved = score_numbers(FOUND, TRUTH, 0), score_numbers(FOUND * scale + shift, TRUTH * scale + shift, 0)
    for name in ("pearson", "spearman", "r2"):
        assert getattr(moved, name) == pytest.approx(getattr(plain, name), abs=1e-6)


def test_constant_predictions_have_no_correlation():
    found = score_numbers(np.full(400, 7.3), TRUTH, 0)
    assert (found.pearson, found.spearman) == (0, 0)
    assert found.r2 < 0
    assert score_numbers(TRUTH.mean() + np.zeros(400), TRUTH, 0).r2 == pytest.approx(0)
    assert pearson(moments(TRUTH, np.ones(400)).sum(0)[None])[0] == 0


def test_empty_input_is_an_error():
    with pytest.raises(DataError, match="nothing to judge"):
        score_numbers([], [], 0)
