"""Sorting with permutation, and sorted search: the basis of counting and lookup."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def sort_with_permutation(keys: Ints) -> tuple[Ints, Ints]:
    """Sorted keys (non-negative) and their permutation. If key and position fit into 64 bits, sorts packed integers,
    which is five times faster than argsort."""
    bits = len(keys).bit_length()
    if not len(keys) or int(keys.max()) >> (63 - bits):
        order = np.argsort(keys)
        return keys[order], order
    packed = np.sort(keys << bits | np.arange(len(keys)))
    return packed >> bits, packed & ((1 << bits) - 1)


def search_sorted(sorted_keys: Ints, wanted: Ints) -> Ints:
    """Index of each wanted key among the sorted ones, or -1. Sorted queries share the search path in cache."""
    rising, order = sort_with_permutation(wanted)
    place = np.minimum(np.searchsorted(sorted_keys, rising), len(sorted_keys) - 1)
    found = np.empty(len(wanted), np.int64)
    found[order] = np.where(sorted_keys[place] == rising, place, -1)
    return found
