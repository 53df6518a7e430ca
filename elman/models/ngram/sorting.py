"""Sorting with a memory of places, the work horse of counting and of looking up."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def ranked(keys: Numbers) -> tuple[Numbers, Numbers]:
    """Keys (not negative) in rising order, and where each stood. Where a key and its place fit into one number, that is
    sorted: five times faster than sorting places."""
    bits = len(keys).bit_length()
    if not len(keys) or int(keys.max()) >> (63 - bits):
        order = np.argsort(keys)
        return keys[order], order
    packed = np.sort(keys << bits | np.arange(len(keys)))
    return packed >> bits, packed & ((1 << bits) - 1)


def positions(sorted_keys: Numbers, wanted: Numbers) -> Numbers:
    """Where each wanted key stands among the sorted ones, or -1. Asked in rising order, neighbours share their way."""
    rising, order = ranked(wanted)
    place = np.minimum(np.searchsorted(sorted_keys, rising), len(sorted_keys) - 1)
    found = np.empty(len(wanted), np.int64)
    found[order] = np.where(sorted_keys[place] == rising, place, -1)
    return found
