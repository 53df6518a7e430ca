"""The largest of many in two stages is what comparing all gives."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elman.generation.beam_step import GROUP_SIZE, MIN_SIZE_FOR_GROUPS, topk_of_sums


@given(
    rows=st.integers(0, 3),
    parts=st.integers(1, 3),
    many=st.one_of(st.integers(1, 40), st.integers(MIN_SIZE_FOR_GROUPS, MIN_SIZE_FOR_GROUPS + 2 * GROUP_SIZE)),
    count=st.integers(1, 12),
    last=st.sampled_from([0, 9]),
    seed=st.integers(0, 999),
)
def test_two_stages_find_what_one_finds(rows: int, parts: int, many: int, count: int, last: int, seed: int) -> None:
    """Catches: the last group, which is not whole, left out, or counted twice; offsets added in one stage only; one
    group fewer than numbers."""
    torch.manual_seed(seed)
    values, offsets = torch.randn(rows, parts, many), torch.randn(rows, parts)
    values[:, :, -1] += last
    sums = (values + offsets.unsqueeze(2)).flatten(1)
    found, places = topk_of_sums(values, offsets, count)
    assert torch.equal(found, sums.topk(min(count, parts * many), dim=1)[0])
    assert torch.equal(sums.gather(1, places), found)
    assert all(len(set(row)) == len(row) for row in places.tolist())


@pytest.mark.parametrize("place", [0, MIN_SIZE_FOR_GROUPS - 1, MIN_SIZE_FOR_GROUPS + 2])
def test_what_is_not_a_number_is_found(place: int) -> None:
    values = torch.randn(1, 2, MIN_SIZE_FOR_GROUPS + 3)
    values[0, 1, place] = torch.nan
    found, places = topk_of_sums(values, torch.zeros(1, 2), 3)
    assert found[0, 0].isnan()
    assert places[0, 0] == MIN_SIZE_FOR_GROUPS + 3 + place


def test_parts_that_are_out_of_the_race_come_last() -> None:
    values, offsets = torch.randn(2, 3, MIN_SIZE_FOR_GROUPS), torch.tensor([[0.0, -torch.inf, -torch.inf]] * 2)
    found, places = topk_of_sums(values, offsets, 10)
    assert found.isfinite().all()
    assert (places < MIN_SIZE_FOR_GROUPS).all()
