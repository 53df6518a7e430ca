"""Dropout with a fixed mask: what is the same along time, what differs between rows, and how large the rest is."""

import pytest
import torch

from elman.ops.dropout import embedded, locked_dropout


def test_locked_dropout_shares_its_mask_over_time_and_not_over_rows() -> None:
    torch.manual_seed(0)
    x = locked_dropout(torch.ones(8, 5, 100), 0.4, training=True)
    assert (x == x[:, :1]).all()
    assert not (x[0] == x[1]).all()
    torch.testing.assert_close(x.unique(), torch.tensor([0.0, 1 / 0.6]))
    assert 0.3 < (x == 0).float().mean() < 0.5


def test_embedding_dropout_drops_whole_words() -> None:
    torch.manual_seed(0)
    words = torch.arange(500).expand(2, 500)
    found = embedded(words, torch.ones(500, 6), 0.1, training=True)
    assert (found == found[:, :, :1]).all()
    torch.testing.assert_close(found.unique(), torch.tensor([0.0, 1 / 0.9]))
    assert 0.05 < (found == 0).float().mean() < 0.15
    assert torch.equal(found[0], found[1])  # the same words everywhere


@pytest.mark.parametrize(("share", "training"), [(0.5, False), (0.0, True)])
def test_dropout_is_the_identity_in_evaluation_or_at_zero(share: float, training: bool) -> None:
    x, table, words = torch.randn(2, 3, 4), torch.randn(5, 4), torch.tensor([[0, 4], [2, 2]])
    assert locked_dropout(x, share, training) is x
    assert torch.equal(embedded(words, table, share, training), table[words])
