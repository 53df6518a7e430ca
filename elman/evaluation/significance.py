"""How much of a score is luck: confidence intervals by drawing the sample again and again from itself."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elman.evaluation.jsonable import jsonable

AT_ONCE = 1000  # draws in memory
UNITS = 4096  # more than these are first put together at random: the interval stays, the work does not grow


def bootstrap_interval(
    values: ArrayLike, weights: ArrayLike | None = None, level: float = 0.95, samples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Where sum(values) / sum(weights) lies if the units (documents, blocks) are drawn anew; the mean without weights.

    Values and weights are totals of a unit, not averages: nats and tokens of each document.
    """
    totals = np.asarray(values, dtype=np.float64)
    sizes = np.ones_like(totals) if weights is None else np.asarray(weights, dtype=np.float64)
    assert totals.shape == sizes.shape == (len(totals),), "one value and one weight for each unit"
    assert len(totals), "an interval needs units"
    assert sizes.min() >= 0 < sizes.sum(), "units weigh something"
    assert 0 < level < 1 <= samples
    random = np.random.default_rng(seed)
    if len(totals) > UNITS:
        unit = random.permutation(len(totals)) % UNITS
        totals, sizes = (np.bincount(unit, part).astype(np.float64) for part in (totals, sizes))
    drawn = random.integers(len(totals), size=(samples, len(totals)))
    weighed = sizes[drawn].sum(axis=1)
    ratios = totals[drawn].sum(axis=1)[weighed > 0] / weighed[weighed > 0]
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def share_interval(hits: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Where a share of right answers lies (Wilson, 1927), also where all or none were right, of which drawing anew
    would make all or none again."""
    right = np.asarray(hits, dtype=bool)
    assert right.ndim == 1
    assert len(right), "an interval needs answers"
    count, share, z = len(right), float(right.mean()), NormalDist().inv_cdf((1 + level) / 2)
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    width = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, min(share, middle - width)), min(1.0, max(share, middle + width))  # in spite of rounding


def resample_interval(
    units: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    level: float = 0.95,
    samples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """The same for a score that is no ratio of two sums, like a mean of F1s, but is still a function of sums.

    `units` (units, parts) are what each unit adds; `statistic` gets sums (samples, parts) and gives a score for each.
    """
    totals = np.asarray(units)
    assert totals.ndim == 2, "parts of each unit"
    assert len(totals), "an interval needs units"
    assert 0 < level < 1 <= samples
    random = np.random.default_rng(seed)
    if len(totals) > UNITS:
        order = random.permutation(len(totals))
        totals = np.add.reduceat(totals[order], np.arange(UNITS) * len(totals) // UNITS, axis=0, dtype=np.float64)
    totals = totals.astype(np.float64)
    drawn = random.multinomial(len(totals), np.full(len(totals), 1 / len(totals)), size=samples)
    low, high = np.quantile(statistic(drawn @ totals), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """How much better the second of two models is, on the same examples."""

    difference: float
    interval: tuple[float, float]
    """Where it lies if the examples are drawn anew (95 %)."""
    p_value: float
    """Share of draws that would deny it: twice that of draws on the other side of zero, the sample itself counted as
    one of them, so that it is never 0."""

    def plain(self) -> dict[str, Any]:
        return jsonable(self)


def paired_difference(
    first: ArrayLike, second: ArrayLike, weights: ArrayLike | None = None, samples: int = 10_000, seed: int = 0
) -> Difference:
    """Paired bootstrap (Koehn, 2004): both models on the same draws, so that what is hard for both does not count."""
    change = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    sizes = np.ones_like(change) if weights is None else np.asarray(weights, dtype=np.float64)
    assert len(change) == len(sizes) > 0, "pairs of values"
    random = np.random.default_rng(seed)
    whole = float(change.sum() / sizes.sum())
    if len(change) > UNITS:
        unit = random.permutation(len(change)) % UNITS
        change, sizes = (np.bincount(unit, part).astype(np.float64) for part in (change, sizes))
    drawn = random.multinomial(len(change), np.full(len(change), 1 / len(change)), size=samples)
    found = (drawn @ change) / np.maximum(drawn @ sizes, 1e-300)
    return _difference(whole, found)


def paired_scores(
    first: ArrayLike,
    second: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    samples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """The same for a score that is a function of sums over units, as in `resample_interval`: an F1, a mean of them."""
    parts = [np.asarray(units, dtype=np.float64) for units in (first, second)]
    assert parts[0].ndim == parts[1].ndim == 2
    assert len(parts[0]) == len(parts[1]) > 0, "pairs of units"
    random = np.random.default_rng(seed)
    whole = np.subtract(*(statistic(part.sum(0, keepdims=True)) for part in reversed(parts)))
    if len(parts[0]) > UNITS:
        order, cuts = random.permutation(len(parts[0])), np.arange(UNITS) * len(parts[0]) // UNITS
        parts = [np.add.reduceat(part[order], cuts, axis=0) for part in parts]
    count, found = len(parts[0]), []
    for size in [AT_ONCE] * (samples // AT_ONCE) + [samples % AT_ONCE]:
        drawn = random.multinomial(count, np.full(count, 1 / count), size=size)
        found.append(statistic(drawn @ parts[1]) - statistic(drawn @ parts[0]))
    return _difference(float(whole[0]), np.concatenate(found))


def _difference(whole: float, found: NDArray[np.float64]) -> Difference:
    """By what was found in each draw."""
    low, high = np.quantile(found, [0.025, 0.975])
    beyond = min((found <= 0).sum(), (found >= 0).sum())
    return Difference(whole, (float(low), float(high)), min(1.0, 2 * float(beyond + 1) / (len(found) + 1)))
