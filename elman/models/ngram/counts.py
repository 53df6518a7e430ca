"""Every distinct n-gram of a text with how often it occurs, by sorting: one order after the other, each from the last.

An n-gram is named by the number of its context, one order below, and its last word: context * vocabulary + word.
`<eos>` stands for two things that never meet: as a context it is the beginning of a document, as a word its end. So no
n-gram reaches over it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elman.models.ngram.sorting import Numbers, ranked


@dataclass
class Level:
    """The distinct n-grams of one order, by rising key."""

    keys: Numbers  # for single words the words themselves, all of the vocabulary
    counts: Numbers
    shorter: NDArray[np.int32]  # the number of the same n-gram without its first word, one order below
    opening: NDArray[np.bool_]  # whether it begins with the beginning of a document
    before: Numbers | None = None  # distinct words seen before it; known once the next order is


def count(tokens: NDArray[np.integer], starts: Numbers, vocab_size: int, order: int) -> Iterator[Level]:
    """Levels 1 to `order` of documents that begin at `starts`, each ended by `<eos>`. `before` of a level is filled in
    when the next one is given."""
    words = np.asarray(tokens, dtype=np.int64)
    depth = np.arange(len(words)) - np.repeat(starts[:-1], np.diff(starts))  # words before it in its document
    counts = np.bincount(words, minlength=vocab_size)
    level = Level(np.arange(vocab_size), counts, np.zeros(vocab_size, np.int32), np.zeros(vocab_size, bool))
    yield level
    numbers = words.astype(np.int32)  # of the n-gram that ends at each position
    places = np.arange(len(words))
    for length in range(2, order + 1):
        places = places[depth[places] >= length - 2]  # `<eos>` before the document is part of the context
        keys = numbers[places - 1].astype(np.int64) * vocab_size + words[places]  # place -1: the last `<eos>`
        keys, order_of_keys = ranked(keys)
        by_key = places[order_of_keys]  # a place for each key
        new = np.concatenate([[True], keys[1:] != keys[:-1]]) if len(keys) else np.zeros(0, bool)
        firsts = np.flatnonzero(new)
        shorter, opening = numbers[by_key[firsts]], depth[by_key[firsts]] == length - 2
        level.before = np.bincount(shorter, minlength=len(level.keys))
        level = Level(keys[firsts], np.diff(firsts, append=len(keys)), shorter, opening)
        numbers = np.zeros_like(numbers)
        numbers[by_key] = np.cumsum(new, dtype=np.int32) - 1
        yield level
