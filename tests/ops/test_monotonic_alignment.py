"""Going forward over a source, all at once, as one place after another would have it."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.ops.monotonic_alignment import NEVER, Moves, advance


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), places=st.integers(1, 12))
def test_all_positions_at_once_equal_one_position_at_a_time(seed: int, places: int) -> None:
    """Catches: a stop once more taken for going on; a place's own leaving counted."""
    torch.manual_seed(seed)
    here = torch.randn(3, places).double().softmax(1)
    stay, stop = (3 * torch.randn(2, 3, places).double()).sigmoid()
    expected, arriving = [], torch.zeros(3).double()
    for place in range(places):
        expected.append(here[:, place] * stay[:, place] + arriving * stop[:, place])
        arriving = arriving * (1 - stop[:, place]) + here[:, place] * (1 - stay[:, place])
    found = advance(here.log(), Moves(stay.log(), (1 - stay).log(), stop.log(), (1 - stop).log())).exp()
    torch.testing.assert_close(found, torch.stack(expected, 1))


def test_positions_behind_an_absorbing_one_are_not_reached() -> None:
    """In float32: what is impossible must not cost the precision of what is not."""
    here = torch.tensor([0.0, NEVER, NEVER, NEVER])
    stop = torch.tensor([NEVER, -2.0, 0.0, NEVER])
    leave = torch.tensor([0.0, -0.1454, NEVER, NEVER])
    found = advance(here, Moves(torch.tensor([NEVER, -1.0, 0.0, NEVER]), leave, stop, leave))
    torch.testing.assert_close(found[:3].exp().sum(), torch.ones(()), atol=1e-4, rtol=0)
    assert found[3] <= NEVER
