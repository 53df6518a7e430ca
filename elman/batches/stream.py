"""Batches of a continuous token stream, split into parallel streams; the state is carried over from batch to batch."""

import numpy as np
from numpy.typing import NDArray

from elman.batches.batch import Batch, Batches
from elman.batches.store import TokenStore
from elman.errors import DataError


class Stream(Batches):
    """`batch_size` parallel contiguous streams of equal size; each batch takes the next `length` positions of all
    streams.

    tokens  a b c d e f g h i j k      streams  a b c d e   batches  a b | c d e
                                                f g h i j            f g | h i j    (a single last position is merged)
    The `left_out` tokens (k) fill no stream; with `shift` the streams start elsewhere in each epoch.
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
            reason = f"{total} tokens are too few for {batch_size} parallel streams"
            raise DataError(reason, file=path, remedy="use a smaller batch size")
        self.sizes = np.full(batch_size, total // batch_size)
        self.left_out = total % batch_size

    def length_of(self, number: int) -> int:
        return len(self.plan(number)[1]) - 1

    def batch(self, number: int, index: int) -> Batch:
        offset, cuts = self.plan(number)
        start, stop = cuts[index], cuts[index + 1]
        lengths = np.minimum(self.sizes, stop) - start
        rows = int((lengths > 0).sum())
        first = offset + np.cumsum(self.sizes) - self.sizes + start
        return self.gather(first[:rows], lengths[:rows], fresh=index == 0)

    def arrange(self, rng: np.random.Generator) -> tuple[int, NDArray[np.int64]]:
        """Offset of the first stream, and the positions at which streams are cut into batches."""
        return int(rng.integers(len(self.store.tokens))) if self.shift else 0, self._cuts(rng)

    def _cuts(self, rng: np.random.Generator) -> NDArray[np.int64]:
        size = int(self.sizes[0])
        if self.jitter:  # as in AWD-LSTM (Merity et al., 2018)
            draws = size // 5 + 1
            usual = np.where(rng.random(draws) < 0.95, self.length, self.length / 2)
            cuts = np.cumsum(np.maximum(5, rng.normal(usual, 5).astype(np.int64)))
        else:
            cuts = np.arange(self.length, size, self.length)
        cuts = cuts[cuts < size]
        if len(cuts) and self.length > 1 and size - cuts[-1] == 1:
            cuts = cuts[:-1]  # a single last position is merged with the batch before
        return np.concatenate([[0], cuts, [size]])


class ParallelStreams(Stream):
    """Evaluation batches: all tokens, not shuffled. With one stream every token has its full context."""

    def __init__(self, store: TokenStore, lanes: int, length: int):
        super().__init__(store, min(lanes, max(len(store.tokens), 1)), length, seed=0, shift=False)
        self.sizes[: self.left_out] += 1
        self.left_out = 0
