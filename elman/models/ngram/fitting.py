"""From documents to tables: count, smooth, prune, number anew."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.models.ngram.config import NGramConfig
from elman.models.ngram.counts import Level
from elman.models.ngram.smoothing import smooth
from elman.models.ngram.sorting import Numbers
from elman.models.ngram.tables import ZERO


class Fitted(NamedTuple):
    """One order ready to be stored; `backoff` belongs to the contexts, which are the n-grams of the order below."""

    keys: Numbers
    log_prob: NDArray[np.float32]
    context_backoff: NDArray[np.float32]
    discounts: tuple[float, ...]
    guessed: bool


def weigh(levels: list[Level], vocab_size: int, config: NGramConfig) -> Iterator[Fitted]:
    """Every order in turn. What is pruned is gone, and n-grams are numbered by what is left."""
    below, stays = None, np.ones(1, bool)
    for length, level in enumerate(levels, 1):
        weights = smooth(level, length, below, len(stays), vocab_size, config)
        backoff = logarithm(weights.gammas[stays])
        keys, kept = level.keys, level.counts >= config.least(length)
        if length == 1:
            kept = np.ones(len(keys), bool)
        elif not (kept.all() and stays.all()):
            context, word = np.divmod(keys[kept], vocab_size)
            keys = (np.cumsum(stays) - 1)[context] * vocab_size + word
        yield Fitted(keys, logarithm(weights.probabilities[kept]), backoff, weights.discounts, weights.guessed)
        below, stays = weights.probabilities, kept


def logarithm(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Never above 0 by rounding, and finite: nothing is less than `ZERO`."""
    with np.errstate(divide="ignore"):
        return np.clip(np.log(values), ZERO, 0).astype(np.float32)
