"""How well numbers are predicted: errors, correlations, and the share of variance explained, with intervals.

Symbols: x prediction, y truth, both less the mean of the truth; n examples; sums over examples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from elman.errors import DataError
from elman.evaluation.significance import Array, Interval, bootstrap_interval, estimate
from elman.jsonable import Result

ROUNDING = 1e-12  # a variance that is a smaller share of its sum of squares is none


@dataclass(frozen=True)
class Regression(Result):
    """Errors are in the unit of the truth (squared, for mse). 95 % intervals: bootstrap over ten examples or more."""

    mse: float
    mse_interval: Interval | None
    baseline_mse: float
    """Of predicting one and the same number for every example: the mean of the training targets."""
    mae: float
    mae_interval: Interval | None
    pearson: float
    """Linear correlation; 0 where all predictions, or all true numbers, are equal."""
    pearson_interval: Interval | None
    spearman: float
    """Correlation of ranks, ties at their mean rank."""
    spearman_interval: Interval | None
    r2: float
    """Share of the variance that is explained: 1 - mse / variance; below 0 where the mean of the truth is better."""
    r2_interval: Interval | None
    examples: int


def score_numbers(predictions: ArrayLike, truth: ArrayLike, baseline: float) -> Regression:
    found, right = np.asarray(predictions, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    assert found.shape == right.shape == (len(found),), "one prediction for each true number"
    if not len(found):
        raise DataError("no example: there is nothing to judge by")
    squares, errors = (found - right) ** 2, np.abs(found - right)
    values, ranks = moments(found, right), moments(rank(found), rank(right))
    (linear, linear_interval), (of_ranks, ranks_interval) = estimate(values, pearson), estimate(ranks, pearson)
    explained, explained_interval = estimate(values, r2)
    return Regression(
        mse=float(squares.mean()),
        mse_interval=bootstrap_interval(squares),
        baseline_mse=float(((baseline - right) ** 2).mean()),
        mae=float(errors.mean()),
        mae_interval=bootstrap_interval(errors),
        pearson=linear,
        pearson_interval=linear_interval,
        spearman=of_ranks,
        spearman_interval=ranks_interval,
        r2=explained,
        r2_interval=explained_interval,
        examples=len(found),
    )


def moments(predictions: Array, truth: Array) -> Array:
    """What each example adds (examples, 6) to n, Σx, Σy, Σx², Σy², Σxy; centred and scaled against cancellation."""
    size = float(truth.std()) or 1.0
    x, y = (predictions - truth.mean()) / size, (truth - truth.mean()) / size
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def pearson(sums: Array) -> Array:
    """Correlation (samples,) by sums (samples, 6) of `moments`."""
    n, x, y, xx, yy, xy = sums.T
    of_x, of_y = xx - x * x / n, yy - y * y / n
    defined = (of_x > ROUNDING * xx) & (of_y > ROUNDING * yy)
    size = np.sqrt(np.where(defined, of_x * of_y, 1))
    return np.where(defined, (xy - x * y / n) / size, 0).clip(-1, 1)


def r2(sums: Array) -> Array:
    """1 - Σ(x - y)² / Σ(y - mean)² by the same sums; 0 where all true numbers are equal."""
    n, _, y, xx, yy, xy = sums.T
    total = yy - y * y / n
    return 1 - np.divide(xx - 2 * xy + yy, total, out=np.ones(len(sums)), where=total > 0)


def rank(values: Array) -> Array:
    """1 for the smallest; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[place]
