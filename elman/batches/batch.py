"""The batch of a language model, and the base classes of batch sources."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.batches.store import TokenStore
from elman.errors import ConfigError, DataError
from elman.shapes import Lengths, Tokens


class Batch(NamedTuple):
    """`targets` are `inputs` shifted by one. Rows are right-padded to `lengths`."""

    inputs: Tokens
    targets: Tokens
    lengths: Lengths | None  # None: no padding
    fresh: bool  # all rows start with a fresh state; else with that of the first len(inputs) rows of the last batch

    def rows(self, rows: slice) -> "Batch":
        """A subset of rows: `slice(rank, None, world)` over all ranks covers every row, and each rank's rows
        continue."""
        lengths = None if self.lengths is None else self.lengths[rows]
        return Batch(self.inputs[rows], self.targets[rows], lengths, self.fresh)

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.inputs)

    @property
    def real(self) -> int:
        """Number of target positions that are not padding."""
        return self.targets.numel() if self.lengths is None else int(self.lengths.sum())

    def mask(self) -> Tensor:
        """True at real positions (rows, time)."""
        if self.lengths is None:
            return torch.ones_like(self.targets, dtype=torch.bool)
        return torch.arange(self.targets.shape[1], device=self.targets.device) < self.lengths[:, None]

    def to(self, device: str | torch.device) -> "Batch":
        lengths = None if self.lengths is None else self.lengths.to(device)
        return Batch(self.inputs.to(device), self.targets.to(device), lengths, self.fresh)


class EpochBatches(ABC):
    """A pure function of (seed, epoch, index): the position in the data is two numbers, so resuming is exact and
    free."""

    seed: int
    _plan: tuple[int, Any] = -1, None

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, starting at index `start`."""
        for index in range(start, self.length_of(number)):
            yield self.batch(number, index)

    @abstractmethod
    def length_of(self, number: int) -> int:
        """Number of batches of an epoch."""

    @abstractmethod
    def batch(self, number: int, index: int) -> Any:
        """One batch of an epoch."""

    @abstractmethod
    def arrange(self, rng: np.random.Generator) -> Any:
        """Draws the order of an epoch."""

    def plan(self, number: int) -> Any:
        """What `arrange` has drawn for this epoch."""
        if self._plan[0] != number:
            rng = np.random.default_rng(np.random.SeedSequence([self.seed, number]))
            self._plan = number, self.arrange(rng)
        return self._plan[1]


class Batches(EpochBatches):
    """Batches of the tokens of a store."""

    def __init__(self, store: TokenStore, batch_size: int, length: int, seed: int):
        for name, value, least in [("batch_size", batch_size, 1), ("length", length, 1), ("seed", seed, 0)]:
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, but got {value}")
        if not len(store.tokens):
            raise DataError("contains no document to make batches of", file=store.folder / store.name)
        self.store, self.batch_size, self.length, self.seed = store, batch_size, length, seed

    def gather(self, first: NDArray[np.int64], lengths: NDArray[np.int64], fresh: bool) -> Batch:
        """Rows of targets that begin at `first`; inputs are the preceding tokens. The store is treated as a ring: its
        last token is an `<eos>`, which precedes its first."""
        steps = np.arange(-1, lengths[0])
        positions = first[:, None] + steps
        positions %= len(self.store.tokens)
        padded = lengths[-1] < lengths[0]
        if padded:
            positions[steps >= lengths[:, None]] = -1  # index of the final `<eos>`
        block = torch.from_numpy(self.store.tokens[positions].astype(np.int64))
        inputs, targets = block[:, :-1].contiguous(), block[:, 1:].contiguous()
        if self.store.start != self.store.end:  # imported models may have another start token
            inputs[inputs == self.store.end] = self.store.start
        return Batch(inputs, targets, torch.from_numpy(lengths) if padded else None, fresh)
