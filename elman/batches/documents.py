"""Batches of independent documents of similar length, each with a fresh state."""

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
        self._plan: tuple[int, _EpochOrder] | None = None

    def length_of(self, number: int) -> int:
        return int(self._planned(number).ends[-1])

    def batch(self, number: int, index: int) -> Batch:
        plan = self._planned(number)
        rank = int(np.searchsorted(plan.ends, index, side="right"))
        chunk = index - (int(plan.ends[rank - 1]) if rank else 0)
        group = int(plan.groups[rank]) * self.batch_size
        documents = plan.order[group : group + self.batch_size]
        begin = chunk * self.length
        left = self.sizes[documents] - begin
        documents, left = documents[left > 0], left[left > 0]
        return self.gather(self.store.starts[documents] + begin, np.minimum(left, self.length), fresh=chunk == 0)

    def _planned(self, number: int) -> _EpochOrder:
        if self._plan is None or self._plan[0] != number:
            self._plan = number, self._arrange(self.generator(number))
        return self._plan[1]

    def _arrange(self, rng: np.random.Generator) -> _EpochOrder:
        count = len(self.sizes)
        order = rng.permutation(count) if self.shuffle else np.arange(count)
        pools = np.arange(count) // (self.pool * self.batch_size)
        order = order[np.lexsort((-self.sizes[order], pools))]
        longest = self.sizes[order[:: self.batch_size]]
        groups = rng.permutation(len(longest)) if self.shuffle else np.arange(len(longest))
        return _EpochOrder(order, groups, np.cumsum(-(-longest[groups] // self.length)))
