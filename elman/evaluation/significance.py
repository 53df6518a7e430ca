"""How much of a score is luck: confidence intervals by drawing the sample again and again from itself."""

import numpy as np
from numpy.typing import ArrayLike

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
