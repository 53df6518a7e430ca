"""A sequence of which each position is a row of a table, such as the embedding of a token.

A layer that reads it computes what depends on its input alone once for each row, instead of once for each position.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from elman.ops.forms import only_reference
from elman.ops.transforms import compiling
from elman.shapes import Sequence, Tokens

MANY = 1024  # positions; below, the time is short anyway, and compiling C++ for the recurrence costs more


@dataclass(frozen=True)
class Lookup:
    table: Tensor  # (rows, width)
    rows: Tokens

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int, int]:
        batch, time = self.rows.shape
        return batch, time, self.table.shape[1]

    def dense(self) -> Sequence:
        return self.table[self.rows]


def worth_a_table(tokens: Tokens) -> bool:
    """Whether these are many tokens on a CPU, whose activations nothing differentiates, records or traces."""
    predicting = tokens.is_cpu and tokens.numel() >= MANY and not torch.is_grad_enabled()
    plain = not (compiling() or torch.jit.is_tracing() or torch.is_autocast_enabled("cpu"))
    return predicting and plain and only_reference() is None


def distinct(tokens: Tokens, size: int) -> tuple[Tensor, Tokens]:
    """The different tokens of a vocabulary of this `size`, and for each position the number of its token among them."""
    seen = torch.zeros(size, dtype=torch.bool)
    seen[tokens.flatten()] = True
    return seen.nonzero().squeeze(1), (seen.cumsum(0) - 1)[tokens]
