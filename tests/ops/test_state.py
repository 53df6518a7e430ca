"""States as values: their form survives what is done to them."""

from typing import NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elman.ops.state import choose, detach, map_state, restore, take_rows, tensors


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


leaves = st.integers(0, 99).map(lambda seed: torch.randn(3, 2, generator=torch.Generator().manual_seed(seed)))
states = st.recursive(leaves, lambda inner: st.builds(Pair, inner, inner) | st.lists(inner, max_size=3).map(tuple))


def same(a, b) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


@given(states)
def test_restore_is_the_inverse_of_tensors(state) -> None:
    """Catches: named tuples came back as tuples; two parts had the same name."""
    empty = map_state(torch.zeros_like, state)
    assert same(restore(empty, dict(tensors(state))), state)


@given(states, st.permutations(range(3)))
def test_rows_can_be_taken_in_any_order(state, order: list[int]) -> None:
    back = torch.tensor(order).argsort()
    assert same(take_rows(take_rows(state, torch.tensor(order)), back), state)


@given(states)
def test_choose_selects_row_by_row(state) -> None:
    """Catches: the mask was along the width."""
    mixed = choose(torch.tensor([True, False, True]), state, map_state(torch.neg, state))
    for (_, part), (_, old) in zip(tensors(mixed), tensors(state), strict=True):
        assert torch.equal(part, torch.stack([old[0], -old[1], old[2]]))


def test_a_detached_state_has_no_graph() -> None:
    state = Pair(torch.ones(1, requires_grad=True) * 2, torch.ones(1))
    assert not detach(state).first.requires_grad
    assert isinstance(detach(state), Pair)
