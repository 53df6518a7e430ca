"""Counts all distinct n-grams of a text by sorting, one order after the other.

The key of an n-gram is context * vocabulary + word, where context is the index of its first n - 1 words in the order
below. `<eos>` has two uses that never meet: as a context it is the start of a document, as a word its end. So no n-gram
spans documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elman.models.ngram.sorting import Ints, sort_with_permutation


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
