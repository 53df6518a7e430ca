"""Going forward over a source, all at once, as one place after another would have it."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.ops.monotone import NEVER, advance


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), places=st.integers(1, 12))
def test_all_places_at_once_are_what_walking_gives(seed: int, places: int) -> None:
    """Planted: the stop of the place begun at left out; a place's own leaving counted."""
    torch.manual_seed(seed)
    here, stop = torch.randn(3, places).double().softmax(1), (3 * torch.randn(3, places).double()).sigmoid()
    expected, arriving = [], torch.zeros(3).double()
    for place in range(places):
        arriving = arriving + here[:, place]
        expected.append(arriving * stop[:, place])
        arriving = arriving * (1 - stop[:, place])
    found = advance(here.log(), stop.log(), (1 - stop).log()).exp()
    torch.testing.assert_close(found, torch.stack(expected, 1))


def test_no_place_after_one_that_is_never_left_is_reached() -> None:
    """In float32: what is impossible must not cost the precision of what is not."""
    here = torch.tensor([0.0, NEVER, NEVER, NEVER])
    stop = torch.tensor([-1.0, -2.0, 0.0, NEVER])
    leave = torch.log1p(-stop.exp()).clamp(min=NEVER)
    found = advance(here, stop, leave)
    torch.testing.assert_close(found[:3].exp().sum(), torch.ones(()), atol=1e-6, rtol=0)
    assert found[3] <= NEVER
