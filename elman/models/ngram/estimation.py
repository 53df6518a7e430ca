"""Estimates an n-gram model from a text: count, smooth, prune, renumber.

Counting sorts all distinct n-grams, one order after the other. The key of an n-gram is context * vocabulary + word,
where context is the index of its first n - 1 words in the order below. `<eos>` has two uses that never meet: as a
context it is the start of a document, as a word its end. So no n-gram spans documents.

Every smoothing method is an interpolation of a direct estimate with the next shorter context:

    p(w | h) = direct(h, w) + gamma(h) * p(w | h')       h' is h without its first word; p = 1 / vocabulary at the end

direct is 0 for unseen pairs, so it suffices to store the probability of each seen n-gram and the back-off weight gamma
of each context. The mass of pruned n-grams goes to gamma.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from elman.config import Config
from elman.models.ngram.tables import ZERO, Ints, sort_with_permutation

Smoothing = Literal["maximum-likelihood", "add-k", "witten-bell", "absolute", "kneser-ney", "modified-kneser-ney"]
Reals = NDArray[np.float64]
FALLBACK = (0.5, 1.0, 1.5)  # as KenLM's --discount_fallback
FALLBACK_SINGLE = 0.75
TINY = np.finfo(np.float64).tiny


class NGramConfig(Config):
    """Order, smoothing and pruning."""

    type: Literal["ngram"] = "ngram"
    """Model type: n-gram."""
    order: int = Field(5, ge=1)
    """Order n: the next token depends on the n - 1 tokens before it; 1: unigram model."""
    smoothing: Smoothing = "modified-kneser-ney"
    """Smoothing. With maximum-likelihood, unseen n-grams have probability zero and infinite loss."""
    add_k: float = Field(1.0, gt=0)
    """add-k: pseudo-count of every n-gram, seen or not."""
    discount: float | None = Field(None, gt=0, le=1)
    """absolute and kneser-ney: discount of every count; null: estimated for each order."""
    prune: list[int] = Field(default_factory=lambda: [1])
    """Minimum count of n-grams to keep, for orders 1, 2, …; the last applies to all higher orders: [1, 1, 2]."""

    @field_validator("prune")
    @classmethod
    def _rising(cls, prune: list[int]) -> list[int]:
        if not prune or prune[0] != 1 or prune != sorted(prune):
            raise ValueError(
                "must start with 1 and not decrease, like [1, 1, 2]; for rare words use tokenizer.min_frequency"
            )
        return prune

    @model_validator(mode="after")
    def _one_discount(self) -> "NGramConfig":
        if self.discount is not None and self.smoothing not in ("absolute", "kneser-ney"):
            raise ValueError(f"discount applies to smoothing absolute or kneser-ney, not {self.smoothing}")
        return self

    def min_count(self, length: int) -> int:
        """Minimum count of n-grams of this length."""
        return self.prune[min(length, len(self.prune)) - 1]


@dataclass
class Level:
    """The distinct n-grams of one order, sorted by key."""

    keys: Ints  # for unigrams: all ids of the vocabulary
    counts: Ints
    shorter: NDArray[np.int32]  # index of the n-gram without its first word, one order below
    opening: NDArray[np.bool_]  # whether it starts at the start of a document
    before: Ints | None = None  # number of distinct preceding words; set with the next order


def count(tokens: NDArray[np.integer], starts: Ints, vocab_size: int, order: int) -> Iterator[Level]:
    """Yields levels 1 to `order` of documents that start at `starts` and end with `<eos>`. `before` of a level is set
    when the next one is yielded."""
    words = np.asarray(tokens, dtype=np.int64)
    depth = np.arange(len(words)) - np.repeat(starts[:-1], np.diff(starts))  # number of preceding words in the document
    counts = np.bincount(words, minlength=vocab_size)
    level = Level(np.arange(vocab_size), counts, np.zeros(vocab_size, np.int32), np.zeros(vocab_size, bool))
    yield level
    numbers = words.astype(np.int32)  # index of the n-gram that ends at each position
    places = np.arange(len(words))
    for length in range(2, order + 1):
        places = places[depth[places] >= length - 2]  # `<eos>` before the document is part of the context
        keys = numbers[places - 1].astype(np.int64) * vocab_size + words[places]  # place -1: the last `<eos>`
        keys, order_of_keys = sort_with_permutation(keys)
        by_key = places[order_of_keys]  # text position of each sorted key
        new = np.concatenate([[True], keys[1:] != keys[:-1]]) if len(keys) else np.zeros(0, bool)
        firsts = np.flatnonzero(new)
        shorter, opening = numbers[by_key[firsts]], depth[by_key[firsts]] == length - 2
        level.before = np.bincount(shorter, minlength=len(level.keys))
        level = Level(keys[firsts], np.diff(firsts, append=len(keys)), shorter, opening)
        numbers = np.zeros_like(numbers)
        numbers[by_key] = np.cumsum(new, dtype=np.int32) - 1
        yield level


def smooth(
    level: Level, length: int, below: Reals | None, contexts: int, vocab_size: int, config: NGramConfig
) -> tuple[Reals, Reals, tuple[float, ...], bool]:
    """Smooths one order, given the probabilities of the order `below` and its number of `contexts`.

    Gives the probability of each n-gram, the gamma of each context, the discounts, and whether they are guessed.
    """
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
    return probabilities, gammas, discounts, guessed


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


class FittedOrder(NamedTuple):
    """One order ready to be stored; `context_backoff` belongs to its contexts, the n-grams of the order below."""

    keys: Ints
    log_prob: NDArray[np.float32]
    context_backoff: NDArray[np.float32]
    discounts: tuple[float, ...]  # for counts 1, 2, and 3 or more; empty if the method has none
    guessed: bool  # whether the discounts could not be estimated from counts of counts


def estimate(levels: list[Level], vocab_size: int, config: NGramConfig) -> Iterator[FittedOrder]:
    """Yields every order in turn; pruned n-grams are removed and the rest renumbered."""
    below, kept_below = None, np.ones(1, bool)
    for length, level in enumerate(levels, 1):
        smoothed = smooth(level, length, below, len(kept_below), vocab_size, config)
        probabilities, gammas, discounts, guessed = smoothed
        backoff = logarithm(gammas[kept_below])
        keys, kept = level.keys, level.counts >= config.min_count(length)
        if length == 1:
            kept = np.ones(len(keys), bool)
        elif not (kept.all() and kept_below.all()):
            context, word = np.divmod(keys[kept], vocab_size)
            keys = (np.cumsum(kept_below) - 1)[context] * vocab_size + word
        yield FittedOrder(keys, logarithm(probabilities[kept]), backoff, discounts, guessed)
        below, kept_below = probabilities, kept


def logarithm(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Clipped to at most 0 despite rounding, and finite: at least `ZERO`."""
    with np.errstate(divide="ignore"):
        return np.clip(np.log(values), ZERO, 0).astype(np.float32)
