"""Fits an n-gram model: count, smooth, prune, renumber."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.models.ngram.config import NGramConfig
from elman.models.ngram.counts import Level
from elman.models.ngram.smoothing import smooth
from elman.models.ngram.sorting import Ints
from elman.models.ngram.tables import ZERO


class FittedOrder(NamedTuple):
    """One order ready to be stored; `context_backoff` belongs to its contexts, the n-grams of the order below."""

    keys: Ints
    log_prob: NDArray[np.float32]
    context_backoff: NDArray[np.float32]
    discounts: tuple[float, ...]
    guessed: bool


def estimate(levels: list[Level], vocab_size: int, config: NGramConfig) -> Iterator[FittedOrder]:
    """Yields every order in turn; pruned n-grams are removed and the rest renumbered."""
    below, kept_below = None, np.ones(1, bool)
    for length, level in enumerate(levels, 1):
        weights = smooth(level, length, below, len(kept_below), vocab_size, config)
        backoff = logarithm(weights.gammas[kept_below])
        keys, kept = level.keys, level.counts >= config.min_count(length)
        if length == 1:
            kept = np.ones(len(keys), bool)
        elif not (kept.all() and kept_below.all()):
            context, word = np.divmod(keys[kept], vocab_size)
            keys = (np.cumsum(kept_below) - 1)[context] * vocab_size + word
        yield FittedOrder(keys, logarithm(weights.probabilities[kept]), backoff, weights.discounts, weights.guessed)
        below, kept_below = weights.probabilities, kept


def logarithm(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Clipped to at most 0 despite rounding, and finite: at least `ZERO`."""
    with np.errstate(divide="ignore"):
        return np.clip(np.log(values), ZERO, 0).astype(np.float32)
