"""Lines that are predicted together, ahead of the answers, in batches of similar length."""

import numpy as np
import pytest

from elman.batches import length_batches
from elman.batches.groups import one_ahead
from elman.errors import DataError


def test_the_next_item_begins_before_one_is_given_and_none_is_lost_before_an_error():
    said = []

    def begun():
        for number in range(3):
            said.append(f"begin {number}")
            yield number
        raise DataError("wrong")

    ends = (said.append(f"end {number}") for number in one_ahead(begun()))
    with pytest.raises(DataError):
        list(ends)
    assert said == ["begin 0", "begin 1", "end 0", "begin 2", "end 1", "end 2"]


def test_items_that_are_wanted_at_once_come_at_once_and_in_order():
    said = []
    for number in one_ahead(
        (said.append(f"begin {number}") or number for number in range(4)), lambda number: number < 2
    ):
        said.append(f"end {number}")
    assert said == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "begin 3", "end 2", "end 3"]


@pytest.mark.parametrize("tokens", [0, 12])
def test_short_rows_come_in_larger_batches(tokens):
    """Catches rows lost or doubled, and batches of more tokens than allowed."""
    rows = [{"text": np.arange(length)} for length in (1, 5, 2, 2, 7, 1, 0, 1, 1)]
    batches = [(indices, batch.ragged("text")) for indices, batch in length_batches(rows, "text", 2, tokens)]
    assert sorted(index for indices, _ in batches for index in indices) == list(range(len(rows)))
    for indices, text in batches:
        assert text.lengths.tolist() == [len(rows[index]["text"]) for index in indices]
        assert len(indices) <= 2 or text.values.numel() <= tokens
    assert max(len(indices) for indices, _ in batches) == (6 if tokens else 2)
