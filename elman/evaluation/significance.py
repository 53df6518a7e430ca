"""Bootstrap confidence intervals and paired significance tests.

Percentiles of a bootstrap over few units are too narrow: of ten, they hold the mean in 88 % of cases instead of 95 %.
So tails are widened to those of Student's t-distribution (Hesterberg, 2015), and fewer than ten units give no interval.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elman.jsonable import Result

Interval = tuple[float, float]
Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]  # of sums (samples, parts): scores (samples,)

MIN_UNITS = 10  # fewer units (documents, sentences) give no interval
SAMPLES_IN_MEMORY = 1000  # bootstrap samples per batch
FRACTION_TERMS = 40  # pairs of terms of a continued fraction: exact to rounding for 10,000 units
MAX_UNITS = 4096  # more units are first merged at random: same interval in expectation, bounded cost


def bootstrap_interval(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    level: float = 0.95,
    samples: int = 1000,
    seed: int = 0,
    least: int = MIN_UNITS,
) -> Interval | None:
    """Bootstrap interval of sum(values) / sum(weights), or of the mean without weights; none of fewer than `least`.

    Resamples units (documents, blocks). Values and weights are totals of each unit, such as its nats and tokens.
    """
    totals = np.asarray(values, dtype=np.float64)
    sizes = np.ones_like(totals) if weights is None else np.asarray(weights, dtype=np.float64)
    assert totals.shape == sizes.shape == (len(totals),), "one value and one weight per unit"
    if len(totals) < max(2, least):
        return None
    assert sizes.min() >= 0 < sizes.sum(), "units weigh something"
    random = np.random.default_rng(seed)
    totals, sizes = _merge_totals(random, totals, sizes)
    sums, weight_sums = _resampled_sums(random, samples, totals, sizes)
    sampled = sums[weight_sums > 0] / weight_sums[weight_sums > 0]
    return percentiles(sampled, len(totals), level)


def share_interval(hits: ArrayLike) -> Interval:
    """Wilson score interval (95 %) of a proportion (Wilson, 1927), valid also if all or none are right, where a
    bootstrap interval has width zero."""
    right = np.asarray(hits, dtype=bool)
    assert right.ndim == 1
    assert len(right), "an interval needs answers"
    count, share, z = len(right), float(right.mean()), NormalDist().inv_cdf(0.975)
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    width = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    # the interval contains the proportion despite rounding
    return max(0.0, min(share, middle - width)), min(1.0, max(share, middle + width))


def resample_interval(units: ArrayLike, statistic: Statistic, samples: int = 1000) -> Interval | None:
    """Bootstrap interval (95 %) of any function of sums over units, such as a macro F1; none of few units.

    `units` (units, parts) are each unit's summands; `statistic` maps sums (samples, parts) to scores (samples,).
    """
    totals = np.asarray(units)
    assert totals.ndim == 2, "parts of each unit"
    if len(totals) < MIN_UNITS:
        return None
    random = np.random.default_rng(0)
    totals = _merge_units(random, totals)[0].astype(np.float64)
    drawn = random.multinomial(len(totals), np.full(len(totals), 1 / len(totals)), size=samples)
    return percentiles(statistic(drawn @ totals), len(totals))


def estimate(units: ArrayLike, statistic: Statistic) -> tuple[float, Interval | None]:
    """A function of sums over all units, and its interval, as in `resample_interval`."""
    sums = np.asarray(units).sum(axis=0, keepdims=True, dtype=np.float64)
    return float(statistic(sums)[0]), resample_interval(units, statistic)


@dataclass(frozen=True)
class Difference(Result):
    """Difference of two models' scores (second minus first) on the same examples."""

    difference: float
    interval: Interval | None
    """95 % bootstrap interval; none, and no p-value, of fewer than ten examples."""
    p_value: float | None
    """Two-sided: twice the share of bootstrap samples with the opposite sign, with one added, so that it is never 0;
    widened like the interval, which leaves out 0 where it is below 0.05."""


def paired_difference(
    first: ArrayLike, second: ArrayLike, weights: ArrayLike | None = None, samples: int = 10_000
) -> Difference:
    """Paired bootstrap (Koehn, 2004): both models on the same samples, which cancels the difficulty of examples."""
    change = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    sizes = np.ones_like(change) if weights is None else np.asarray(weights, dtype=np.float64)
    assert len(change) == len(sizes) > 0, "pairs of values"
    random = np.random.default_rng(0)
    observed = float(change.sum() / sizes.sum())
    change, sizes = _merge_totals(random, change, sizes)
    sums, weight_sums = _resampled_sums(random, samples, change, sizes)
    return _difference(observed, sums / np.maximum(weight_sums, 1e-300), len(change))


def paired_scores(
    first: ArrayLike, second: ArrayLike, statistic: Statistic, samples: int = 10_000, seed: int = 0
) -> Difference:
    """Paired bootstrap of a function of sums over units, as in `resample_interval`, such as an F1."""
    parts = [np.asarray(units, dtype=np.float64) for units in (first, second)]
    assert parts[0].ndim == parts[1].ndim == 2
    assert len(parts[0]) == len(parts[1]) > 0, "pairs of units"
    random = np.random.default_rng(seed)
    observed = np.subtract(*(statistic(part.sum(0, keepdims=True)) for part in reversed(parts)))
    parts = _merge_units(random, *parts)
    count, differences = len(parts[0]), []
    for size in _batches(samples):
        drawn = random.multinomial(count, np.full(count, 1 / count), size=size)
        differences.append(statistic(drawn @ parts[1]) - statistic(drawn @ parts[0]))
    return _difference(float(observed[0]), np.concatenate(differences), count)


def _batches(samples: int) -> list[int]:
    return [SAMPLES_IN_MEMORY] * (samples // SAMPLES_IN_MEMORY) + [samples % SAMPLES_IN_MEMORY]


def _resampled_sums(random: np.random.Generator, samples: int, *parts: Array) -> list[Array]:
    """Of each part (units,): its sums (samples,) over units drawn with replacement, the same units for all parts."""
    count, sums = len(parts[0]), []
    for size in _batches(samples):
        drawn = random.integers(count, size=(size, count))
        sums.append([part[drawn].sum(axis=1) for part in parts])
    return [np.concatenate(batches) for batches in zip(*sums, strict=True)]


def _merge_totals(random: np.random.Generator, *parts: Array) -> list[Array]:
    """At most MAX_UNITS units, of parts (units,)."""
    if len(parts[0]) <= MAX_UNITS:
        return list(parts)
    unit = random.permutation(len(parts[0])) % MAX_UNITS
    return [np.bincount(unit, part).astype(np.float64) for part in parts]


def _merge_units(random: np.random.Generator, *parts: NDArray[Any]) -> list[NDArray[Any]]:
    """At most MAX_UNITS units, of parts (units, summands)."""
    count = len(parts[0])
    if count <= MAX_UNITS:
        return list(parts)
    order, cuts = random.permutation(count), np.arange(MAX_UNITS) * count // MAX_UNITS
    return [np.add.reduceat(part[order], cuts, axis=0, dtype=np.float64) for part in parts]


def percentiles(sampled: Array, units: int, level: float = 0.95) -> Interval:
    """Percentiles of bootstrap samples, as far out as `deviations` says."""
    assert 0 < level < 1 <= len(sampled)
    tail = NormalDist().cdf(-deviations(units, level))
    low, high = np.quantile(sampled, [tail, 1 - tail])
    return float(low), float(high)


def deviations(units: int, level: float = 0.95) -> float:
    """Half-width of an interval in standard deviations of its bootstrap, which are too small by √((units - 1) / units):
    1.96 for very many units and 95 %."""
    return student_quantile(level, units - 1) * math.sqrt(units / (units - 1))


def _difference(observed: float, sampled: Array, units: int) -> Difference:
    if units < MIN_UNITS:
        return Difference(observed, None, None)
    opposite = float(min((sampled <= 0).sum(), (sampled >= 0).sum()) + 1) / (len(sampled) + 1)
    distance = -NormalDist().inv_cdf(min(0.5, opposite)) * math.sqrt((units - 1) / units)
    return Difference(observed, percentiles(sampled, units), student(distance, units - 1))


def student(t: float, freedom: float) -> float:
    """Two-sided p-value of Student's t-distribution: the regularized incomplete beta function I(freedom / 2, 1 / 2) at
    freedom / (freedom + t²)."""
    x = freedom / (freedom + t * t)
    if t * t > 3:
        return _incomplete_beta(x, freedom / 2, 0.5)
    return 1 - _incomplete_beta(1 - x, 0.5, freedom / 2)  # where the fraction converges fast


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """By its continued fraction 1 / (1 + d1 / (1 + d2 / …)) (DLMF 8.17.22), for x below about (a + 1) / (a + b + 2)."""
    fraction = 1.0
    for m in range(FRACTION_TERMS, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        fraction = 1 + odd / (1 + even / fraction)
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    return scale * x**a * (1 - x) ** b / a / fraction


@cache
def student_quantile(level: float, freedom: int) -> float:
    """The t within which, on both sides of 0, lies this share of Student's t-distribution."""
    low, high = 0.0, 1e4
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - student(middle, freedom) < level else (low, middle)
    return high
