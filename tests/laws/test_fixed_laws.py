"""A state in fixed memory steps like a plain one, for every registered layer.

Seen to fail: with a ring that forgot to turn, one that was a place too short, distances that counted from the last
place, a mask that showed empty places, room for the new positions only, and a
counter shared with the plain state.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from law_cases import SETTINGS, Case, Situation, assert_same, situations

from elman.layers import LAYERS
from elman.layers.attention import Attention, Ring
from elman.ops.state import fixed, map_state, tensors

CASES = [
    Case(name, settings, "auto") for name in LAYERS if LAYERS[name].causal for settings in SETTINGS.get(name, [{}])
]


@pytest.mark.parametrize("case", CASES, ids=str)
@given(situation=situations(), rows=st.booleans())
@torch.no_grad()
def test_a_state_in_fixed_memory_steps_like_the_plain_one(case: Case, situation: Situation, rows: bool) -> None:
    """Rows have different positions; the plain state does not change."""
    layer, x = situation.layer(case), situation.x()
    first = state = layer(x, None, situation.lengths)[1] if rows else situation.state(layer)
    kept, held = map_state(torch.clone, state), fixed(state, situation.time)
    taken = {part.data_ptr() for _, part in tensors(state) if part.numel()}
    assert not taken & {part.data_ptr() for _, part in tensors(held) if part.numel()}
    addresses = [part.data_ptr() for part in held[:2]] if isinstance(held, Ring) else []
    for now in x.unbind(1):
        expected, state = layer.step(now, state)
        found, held = layer.step(now, held)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert_same(first, kept, 0)
    if isinstance(held, Ring):
        assert [part.data_ptr() for part in held[:2]] == addresses
        assert_same(held.seen, state.seen)
    else:
        assert_same(held, state)


@given(situation=situations())
@torch.no_grad()
def test_a_ring_buffer_is_no_longer_than_the_window_or_the_steps_to_come(situation: Situation) -> None:
    layer = Attention(Attention.Config(num_heads=1, context=12), 4).double()
    x = torch.randn(situation.batch, 5, 4, dtype=torch.float64)
    state = layer(x)[1]
    assert fixed(state, 3).keys.shape[2] == 8
    assert fixed(state, 4).keys.shape[2] == 12
    assert fixed(state, 400).keys.shape[2] == 12
    held = fixed(state, 400)
    for number in range(40):
        now = torch.full((situation.batch, 4), float(number % 7), dtype=torch.float64)
        expected, state = layer.step(now, state)
        found, held = layer.step(now, held)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
