"""Where a reader stands who only goes forward: distributions over the places of a source, in logarithms."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

NEVER = -1e4  # for log 0: what is impossible shall stay finite, so that gradients do


class Moves(NamedTuple):
    """What a reader does at each place (..., places), in log-probabilities; each pair makes up one whole."""

    stay: Tensor  # stop once more where it stopped last
    go: Tensor  # or go on from there
    stop: Tensor  # of a place it comes to: stop there
    leave: Tensor  # or pass it


def advance(here: Tensor, moves: Moves) -> Tensor:
    """Where the reader stops next, if it stopped last at `here`: a distribution of the same shape.

    p(t) = here(t) · stay(t) + Σ_{s < t} here(s) · go(s) · leave(s + 1) ··· leave(t - 1) · stop(t), for all t at once:
    the product is that of all places before t over that of all up to s.
    """
    passed = moves.leave.cumsum(-1)
    before = F.pad(passed[..., :-1], (1, 0))
    gone = (here + moves.go - passed).logcumsumexp(-1)
    arriving = F.pad(gone[..., :-1], (1, 0), value=NEVER) + before + moves.stop
    return torch.logaddexp(here + moves.stay, arriving)
