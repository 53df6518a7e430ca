"""The text as one long sequence, read in parallel lanes: state is carried from batch to batch, across documents."""

import numpy as np
from numpy.typing import NDArray

from elman.batches.batch import Batch, Batches
from elman.batches.store import TokenStore
from elman.errors import DataError


class Stream(Batches):
    """`batch_size` contiguous lanes of equal size; each batch takes the next `length` positions of every lane.

    tokens  a b c d e f g h i j k      lanes  a b c d e   batches  a b | c d e
                                              f g h i j            f g | h i j      (a last single position joins in)
    `left_out` tokens (k) do not fill the lanes; with `shift` the lanes begin elsewhere in each epoch, so others are.
    """

    def __init__(
        self,
        store: TokenStore,
        batch_size: int,
        length: int,
        seed: int = 0,
        *,
        jitter: bool = False,
        shift: bool = True,
    ):
        super().__init__(store, batch_size, length, seed)
        self.jitter, self.shift = jitter, shift
        total = len(store.tokens)
        if batch_size > total:
            path = store.folder / store.name
            raise DataError(f"{total} tokens cannot fill {batch_size} lanes", file=path, remedy="lower the batch size")
        self.sizes = np.full(batch_size, total // batch_size)
        self.left_out = total % batch_size
        self._plan: tuple[int, int, NDArray[np.int64]] | None = None

    def length_of(self, number: int) -> int:
        return len(self._planned(number)[1]) - 1

    def batch(self, number: int, index: int) -> Batch:
        offset, cuts = self._planned(number)
        start, stop = cuts[index], cuts[index + 1]
        lengths = np.minimum(self.sizes, stop) - start
        rows = int((lengths > 0).sum())
        first = offset + np.cumsum(self.sizes) - self.sizes + start
        return self.gather(first[:rows], lengths[:rows], fresh=index == 0)

    def _planned(self, number: int) -> tuple[int, NDArray[np.int64]]:
        """Where the first lane begins, and where the lanes are cut into batches."""
        if self._plan is None or self._plan[0] != number:
            chance = self.chance(number)
            offset = int(chance.integers(len(self.store.tokens))) if self.shift else 0
            self._plan = number, offset, self._cuts(chance)
        return self._plan[1:]

    def _cuts(self, chance: np.random.Generator) -> NDArray[np.int64]:
        size = int(self.sizes[0])
        if self.jitter:  # as AWD-LSTM (Merity et al., 2018) does, so that cuts do not fall on the same places
            draws = size // 5 + 1
            usual = np.where(chance.random(draws) < 0.95, self.length, self.length / 2)
            cuts = np.cumsum(np.maximum(5, chance.normal(usual, 5).astype(np.int64)))
        else:
            cuts = np.arange(self.length, size, self.length)
        cuts = cuts[cuts < size]
        if len(cuts) and self.length > 1 and size - cuts[-1] == 1:
            cuts = cuts[:-1]  # a single position is not worth a batch: it joins the one before
        return np.concatenate([[0], cuts, [size]])


class Lanes(Stream):
    """For evaluation: nothing left out, nothing random. One lane gives every token its whole past."""

    def __init__(self, store: TokenStore, lanes: int, length: int):
        super().__init__(store, min(lanes, max(len(store.tokens), 1)), length, seed=0, shift=False)
        self.sizes[: self.left_out] += 1
        self.left_out = 0
