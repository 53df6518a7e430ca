"""N-gram smoothing: every method as an interpolation of a direct estimate with the next shorter context.

    p(w | h) = direct(h, w) + gamma(h) * p(w | h')       h' is h without its first word; p = 1 / vocabulary at the end

direct is 0 for unseen pairs, so it suffices to store the probability of each seen n-gram and the back-off weight gamma
of each context. The mass of pruned n-grams goes to gamma.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.models.ngram.config import NGramConfig
from elman.models.ngram.counts import Level
from elman.models.ngram.sorting import Ints

Reals = NDArray[np.float64]
FALLBACK = (0.5, 1.0, 1.5)  # as KenLM's --discount_fallback
FALLBACK_SINGLE = 0.75
TINY = np.finfo(np.float64).tiny


class Weights(NamedTuple):
    """One smoothed order."""

    probabilities: Reals  # of each n-gram
    gammas: Reals  # of each context, an n-gram of the order below
    discounts: tuple[float, ...]  # for counts 1, 2, and 3 or more; empty if the method has none
    guessed: bool  # whether the discounts could not be estimated from counts of counts


def smooth(
    level: Level, length: int, below: Reals | None, contexts: int, vocab_size: int, config: NGramConfig
) -> Weights:
    """Smooths one order, given the probabilities of the order `below` and its number of `contexts`."""
    context = level.keys // vocab_size if length > 1 else np.zeros(len(level.keys), np.int64)

    def by_context(values: NDArray[Any]) -> Reals:
        return np.bincount(context, weights=values, minlength=contexts).astype(float)

    counts = effective_counts(level, length, config)
    kept = np.where(level.counts >= config.min_count(length), counts, 0)
    total = by_context(counts)
    pruned = total - by_context(kept)
    discounts: tuple[float, ...] = ()
    guessed = False
    taken, added = np.zeros(1), np.zeros(contexts)  # discount of each n-gram; pseudo-counts of each context
    if config.smoothing == "add-k":
        added += config.add_k * vocab_size
    elif config.smoothing == "witten-bell":
        added = by_context(kept > 0)
    elif config.smoothing != "maximum-likelihood":
        discounts, guessed = choose_discounts(counts, config)
        taken = np.array([0.0, *discounts])[np.minimum(kept, 3)]
    freed = pruned + added + (by_context(taken) if discounts else 0.0)
    whole = total + added
    gammas = np.divide(freed, whole, out=np.ones(contexts), where=whole > 0)
    shorter = 1 / vocab_size if below is None else below[level.shorter]
    probabilities = (kept - taken) / np.maximum(whole, TINY)[context] + gammas[context] * shorter
    return Weights(probabilities, gammas, discounts, guessed)


def effective_counts(level: Level, length: int, config: NGramConfig) -> Ints:
    """The counts to smooth: occurrences; below the highest order of Kneser-Ney, continuation counts (distinct preceding
    words, or occurrences at document starts); for add-k, n-grams of full length only."""
    if length == config.order:
        return level.counts
    if config.smoothing in ("kneser-ney", "modified-kneser-ney"):
        assert level.before is not None
        return np.where(level.opening, level.counts, level.before)
    if config.smoothing == "add-k":
        return np.where(level.opening, level.counts, 0)
    return level.counts


def choose_discounts(counts: Ints, config: NGramConfig) -> tuple[tuple[float, float, float], bool]:
    """Discounts of counts 1, 2, and 3 or more from counts of counts (Chen and Goodman, 1999); and whether this failed,
    as on tiny texts and small alphabets, and a fallback is used."""
    if config.discount is not None:
        return (config.discount,) * 3, False
    n1, n2, n3, n4 = (int((counts == number).sum()) for number in range(1, 5))
    share = n1 / (n1 + 2 * n2) if n1 and n2 else 0.0
    if config.smoothing != "modified-kneser-ney":
        return ((share,) * 3, False) if share else ((FALLBACK_SINGLE,) * 3, True)
    if share and n3:
        estimates = 1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3
        if all(0 < estimate <= number for number, estimate in enumerate(estimates, 1)):
            return estimates, False
    return FALLBACK, True
