"""What a training or evaluation step takes, and what every source of such batches promises."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.batches.store import TokenStore
from elman.errors import ConfigError, DataError
from elman.shapes import Lengths, Tokens


class Batch(NamedTuple):
    """`inputs` is `targets` moved by one. Rows whose `lengths` end early are padded on the right."""

    inputs: Tokens
    targets: Tokens
    lengths: Lengths | None  # None: every position is real
    fresh: bool  # all rows begin anew; else the state of the first len(inputs) rows of the batch before is carried

    def rows(self, rows: slice) -> "Batch":
        """Some rows: `slice(rank, None, world)` over all ranks leaves out nothing, and each rank's rows carry on."""
        lengths = None if self.lengths is None else self.lengths[rows]
        return Batch(self.inputs[rows], self.targets[rows], lengths, self.fresh)

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.inputs)

    @property
    def real(self) -> int:
        """Target positions that are not padding."""
        return self.targets.numel() if self.lengths is None else int(self.lengths.sum())

    def mask(self) -> Tensor:
        """True at real positions (rows, time)."""
        if self.lengths is None:
            return torch.ones_like(self.targets, dtype=torch.bool)
        return torch.arange(self.targets.shape[1], device=self.targets.device) < self.lengths[:, None]

    def to(self, device: str | torch.device) -> "Batch":
        lengths = None if self.lengths is None else self.lengths.to(device)
        return Batch(self.inputs.to(device), self.targets.to(device), lengths, self.fresh)


class Batches(ABC):
    """A pure function of (seed, epoch, index): the place in the data is two numbers, and resuming costs nothing."""

    def __init__(self, store: TokenStore, batch_size: int, length: int, seed: int):
        for name, value, least in [("batch_size", batch_size, 1), ("length", length, 1), ("seed", seed, 0)]:
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, but got {value}")
        if not len(store.tokens):
            raise DataError("holds no document: there is nothing to make batches of", file=store.folder / store.name)
        self.store, self.batch_size, self.length, self.seed = store, batch_size, length, seed

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from `start` on."""
        for index in range(start, self.length_of(number)):
            yield self.batch(number, index)

    @abstractmethod
    def length_of(self, number: int) -> int:
        """How many batches an epoch has."""

    @abstractmethod
    def batch(self, number: int, index: int) -> Batch:
        """One batch of an epoch."""

    def chance(self, number: int) -> np.random.Generator:
        """The randomness of one epoch; nobody else's draws move it."""
        return np.random.default_rng(np.random.SeedSequence([self.seed, number]))

    def gather(self, first: NDArray[np.int64], lengths: NDArray[np.int64], fresh: bool) -> Batch:
        """Rows of targets that begin at `first`; each input is the token before. The store is taken as a ring:
        its last token is an `<eos>`, which stands before its first."""
        steps = np.arange(-1, lengths[0])
        positions = first[:, None] + steps
        positions %= len(self.store.tokens)
        padded = lengths[-1] < lengths[0]
        if padded:
            positions[steps >= lengths[:, None]] = -1  # the `<eos>` at the end
        block = torch.from_numpy(self.store.tokens[positions].astype(np.int64))
        inputs, targets = block[:, :-1].contiguous(), block[:, 1:].contiguous()
        if self.store.start != self.store.end:  # an imported model may begin texts with another mark
            inputs[inputs == self.store.end] = self.store.start
        return Batch(inputs, targets, torch.from_numpy(lengths) if padded else None, fresh)
