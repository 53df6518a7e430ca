"""Bootstrap confidence intervals and paired significance tests."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elman.evaluation.jsonable import jsonable

SAMPLES_IN_MEMORY = 1000  # bootstrap samples per batch
MAX_UNITS = 4096  # more units are first merged at random: same interval in expectation, bounded cost


def bootstrap_interval(
    values: ArrayLike, weights: ArrayLike | None = None, level: float = 0.95, samples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of sum(values) / sum(weights), or of the mean without weights.

    Resamples units (documents, blocks). Values and weights are totals of each unit, such as its nats and tokens.
    """
    totals = np.asarray(values, dtype=np.float64)
    sizes = np.ones_like(totals) if weights is None else np.asarray(weights, dtype=np.float64)
    assert totals.shape == sizes.shape == (len(totals),), "one value and one weight per unit"
    assert len(totals), "an interval needs units"
    assert sizes.min() >= 0 < sizes.sum(), "units weigh something"
    assert 0 < level < 1 <= samples
    random = np.random.default_rng(seed)
    if len(totals) > MAX_UNITS:
        unit = random.permutation(len(totals)) % MAX_UNITS
        totals, sizes = (np.bincount(unit, part).astype(np.float64) for part in (totals, sizes))
    drawn = random.integers(len(totals), size=(samples, len(totals)))
    weight_sums = sizes[drawn].sum(axis=1)
    ratios = totals[drawn].sum(axis=1)[weight_sums > 0] / weight_sums[weight_sums > 0]
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def share_interval(hits: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a proportion (Wilson, 1927), valid also if all or none are right, where a bootstrap
    interval has width zero."""
    right = np.asarray(hits, dtype=bool)
    assert right.ndim == 1
    assert len(right), "an interval needs answers"
    count, share, z = len(right), float(right.mean()), NormalDist().inv_cdf((1 + level) / 2)
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    width = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, min(share, middle - width)), min(
        1.0, max(share, middle + width)
    )  # contains the proportion despite rounding


def resample_interval(
    units: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    level: float = 0.95,
    samples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of any function of sums over units, such as a macro F1.

    `units` (units, parts) are each unit's summands; `statistic` maps sums (samples, parts) to scores (samples,).
    """
    totals = np.asarray(units)
    assert totals.ndim == 2, "parts of each unit"
    assert len(totals), "an interval needs units"
    assert 0 < level < 1 <= samples
    random = np.random.default_rng(seed)
    if len(totals) > MAX_UNITS:
        order, cuts = random.permutation(len(totals)), np.arange(MAX_UNITS) * len(totals) // MAX_UNITS
        totals = np.add.reduceat(totals[order], cuts, axis=0, dtype=np.float64)
    totals = totals.astype(np.float64)
    drawn = random.multinomial(len(totals), np.full(len(totals), 1 / len(totals)), size=samples)
    low, high = np.quantile(statistic(drawn @ totals), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """Difference of two models' scores (second minus first) on the same examples."""

    difference: float
    interval: tuple[float, float]
    """95 % bootstrap interval."""
    p_value: float
    """Two-sided: twice the share of bootstrap samples with the opposite sign, with one added, so that it is never 0."""

    def plain(self) -> dict[str, Any]:
        return jsonable(self)


def paired_difference(
    first: ArrayLike, second: ArrayLike, weights: ArrayLike | None = None, samples: int = 10_000, seed: int = 0
) -> Difference:
    """Paired bootstrap (Koehn, 2004): both models on the same samples, which cancels the difficulty of examples."""
    change = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    sizes = np.ones_like(change) if weights is None else np.asarray(weights, dtype=np.float64)
    assert len(change) == len(sizes) > 0, "pairs of values"
    random = np.random.default_rng(seed)
    observed = float(change.sum() / sizes.sum())
    if len(change) > MAX_UNITS:
        unit = random.permutation(len(change)) % MAX_UNITS
        change, sizes = (np.bincount(unit, part).astype(np.float64) for part in (change, sizes))
    drawn = random.multinomial(len(change), np.full(len(change), 1 / len(change)), size=samples)
    return _difference(observed, (drawn @ change) / np.maximum(drawn @ sizes, 1e-300))


def paired_scores(
    first: ArrayLike,
    second: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    samples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Paired bootstrap of a function of sums over units, as in `resample_interval`, such as an F1."""
    parts = [np.asarray(units, dtype=np.float64) for units in (first, second)]
    assert parts[0].ndim == parts[1].ndim == 2
    assert len(parts[0]) == len(parts[1]) > 0, "pairs of units"
    random = np.random.default_rng(seed)
    observed = np.subtract(*(statistic(part.sum(0, keepdims=True)) for part in reversed(parts)))
    if len(parts[0]) > MAX_UNITS:
        order, cuts = random.permutation(len(parts[0])), np.arange(MAX_UNITS) * len(parts[0]) // MAX_UNITS
        parts = [np.add.reduceat(part[order], cuts, axis=0) for part in parts]
    count, differences = len(parts[0]), []
    for size in [SAMPLES_IN_MEMORY] * (samples // SAMPLES_IN_MEMORY) + [samples % SAMPLES_IN_MEMORY]:
        drawn = random.multinomial(count, np.full(count, 1 / count), size=size)
        differences.append(statistic(drawn @ parts[1]) - statistic(drawn @ parts[0]))
    return _difference(float(observed[0]), np.concatenate(differences))


def _difference(observed: float, sampled: NDArray[np.float64]) -> Difference:
    low, high = np.quantile(sampled, [0.025, 0.975])
    opposite = min((sampled <= 0).sum(), (sampled >= 0).sum())
    return Difference(observed, (float(low), float(high)), min(1.0, 2 * float(opposite + 1) / (len(sampled) + 1)))
