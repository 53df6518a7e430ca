"""Monotonic alignment: distributions over the source positions of a reader that only moves forward, in log space."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

NEVER = -1e4  # stands for log 0, so that gradients stay finite


class Moves(NamedTuple):
    """The choices of the reader at each position (..., positions), as log-probabilities; each pair sums to 1."""

    stay: Tensor  # at the last position: stop there again
    go: Tensor  # or move on
    stop: Tensor  # at a position it reaches: stop there
    leave: Tensor  # or pass it


def advance(here: Tensor, moves: Moves) -> Tensor:
    """The distribution of the next stop, from that of the last stop (`here`).

    p(t) = here(t) · stay(t) + Σ_{s < t} here(s) · go(s) · leave(s + 1) ··· leave(t - 1) · stop(t), for all t at once,
    since the product is a ratio of cumulative products.
    """
    passed = moves.leave.cumsum(-1)
    before = F.pad(passed[..., :-1], (1, 0))
    gone = (here + moves.go - passed).logcumsumexp(-1)
    arriving = F.pad(gone[..., :-1], (1, 0), value=NEVER) + before + moves.stop
    return torch.logaddexp(here + moves.stay, arriving)
