"""Dropout with a fixed mask: what is the same along time, what differs between rows, and how large the rest is."""

import pytest
import torch

from elman.ops.dropout import embedding_dropout, locked_dropout


def test_a_row_loses_the_same_units_at_all_times_and_rows_lose_different_ones() -> None:
    torch.manual_seed(0)
    x = locked_dropout(torch.ones(8, 5, 100), 0.4, training=True)
    assert (x == x[:, :1]).all()
    assert not (x[0] == x[1]).all()
    torch.testing.assert_close(x.unique(), torch.tensor([0.0, 1 / 0.6]))
    assert 0.3 < (x == 0).float().mean() < 0.5


def test_words_are_dropped_as_whole_rows() -> None:
    torch.manual_seed(0)
    table = embedding_dropout(torch.ones(500, 6), 0.1, training=True)
    assert (table == table[:, :1]).all()
    torch.testing.assert_close(table.unique(), torch.tensor([0.0, 1 / 0.9]))
    assert 0.05 < (table == 0).float().mean() < 0.15


@pytest.mark.parametrize("dropout", [locked_dropout, embedding_dropout])
def test_nothing_is_dropped_outside_training_or_at_zero(dropout) -> None:
    x = torch.randn(2, 3, 4)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x
