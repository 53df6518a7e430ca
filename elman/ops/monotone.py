"""Where a reader stands who only goes forward: distributions over the places of a source, in logarithms."""

from torch import Tensor
from torch.nn import functional as F

NEVER = -1e4  # for log 0: what is impossible shall stay finite, so that gradients do


def advance(here: Tensor, stop: Tensor, leave: Tensor) -> Tensor:
    """Where the reader stops next: the distribution (..., places) after going on from `here` over any places.

    At each place, the one begun at too, it stops with log-probability `stop` or leaves it with `leave`:
    p(t) = Σ_{s ≤ t} here(s) · leave(s) ··· leave(t - 1) · stop(t), all s and t at once (Raffel et al., 2017).
    """
    reach = F.pad(leave[..., :-1], (1, 0)).cumsum(-1)  # from the first place to each
    return (here - reach).logcumsumexp(-1) + reach + stop
