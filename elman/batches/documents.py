"""Batches of independent documents of similar length, each with a fresh state."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.batches.batch import Batch, Batches
from elman.batches.store import TokenStore

POOL = 50  # batches whose documents are sorted by length together: little padding, but still shuffled


class _EpochOrder(NamedTuple):
    order: NDArray[np.int64]  # document indices; consecutive `batch_size` ones are a group, longest first
    groups: NDArray[np.int64]  # order of groups
    ends: NDArray[np.int64]  # cumulative number of batches per group


class Documents(Batches):
    """Groups of `batch_size` documents, longest first, cut into chunks of `length`; the rows of a chunk are those with
        tokens left, a prefix of the previous rows.

    documents  a b c d e .   chunks  a b c   d e .
               f g .                 f g .             (. is <eos>; the first chunk of a group is fresh)
    """

    def __init__(
        self, store: TokenStore, batch_size: int, length: int, seed: int = 0, *, shuffle: bool = True, pool: int = POOL
    ):
        super().__init__(store, batch_size, length, seed)
        self.shuffle, self.pool = shuffle, pool
        self.sizes = np.diff(store.starts)

    def length_of(self, number: int) -> int:
        return int(self.plan(number).ends[-1])

    def batch(self, number: int, index: int) -> Batch:
        plan = self.plan(number)
        rank = int(np.searchsorted(plan.ends, index, side="right"))
        chunk = index - (int(plan.ends[rank - 1]) if rank else 0)
        group = int(plan.groups[rank]) * self.batch_size
        documents = plan.order[group : group + self.batch_size]
        begin = chunk * self.length
        left = self.sizes[documents] - begin
        documents, left = documents[left > 0], left[left > 0]
        return self.gather(self.store.starts[documents] + begin, np.minimum(left, self.length), fresh=chunk == 0)

    def arrange(self, rng: np.random.Generator) -> _EpochOrder:
        order, groups = bucket_order(rng, [self.sizes], self.batch_size, self.pool, self.shuffle)
        longest = self.sizes[order[groups * self.batch_size]]
        return _EpochOrder(order, groups, np.cumsum(-(-longest // self.length)))


def bucket_order(
    rng: np.random.Generator, sizes: Sequence[NDArray[np.int64]], batch_size: int, pool: int, shuffle: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An order of examples in which consecutive `batch_size` ones are a group of similar sizes, longest first, and an
    order of the groups. The last of the `sizes` counts most."""
    count = len(sizes[0])
    order = rng.permutation(count) if shuffle else np.arange(count)
    pools = np.arange(count) // (pool * batch_size)
    order = order[np.lexsort((*(-part[order] for part in sizes), pools))]
    groups = -(-count // batch_size)
    return order, rng.permutation(groups) if shuffle else np.arange(groups)
