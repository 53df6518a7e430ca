"""A list of sources searched in batches, and one by one."""

from typing import Any

import pytest
import torch

from benchmarks.beam import search_all
from elman.batches import Ragged
from elman.generation import BeamConfig, beam_search
from elman.models import EncoderDecoder, EncoderDecoderConfig

EOS = 0
SHORT = BeamConfig(beam_size=2, max_tokens=6)
SOURCES = [[1, 2], [3], [4, 5, 6, 1, 2], [2, 2, 2], [5], [6, 1, 4, 3], [1, 2]]


def model(**decoder: Any) -> EncoderDecoder:
    torch.manual_seed(3)
    settings = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8, **decoder}}
    found = EncoderDecoder(EncoderDecoderConfig.make(settings), 7, 7, EOS)
    for parameter in found.parameters():
        parameter.data *= 3
    return found


TRANSFORMER = {"pattern": [{"attention": {"context": 20}}, "cross-attention"], "context": [], "attention": None}
TRANSFORMER |= {"residual": True, "positions": "sinusoidal"}  # else many sequences would be equally good


@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("decoder", [{}, {"input_feeding": True}, TRANSFORMER], ids=["plain", "feeding", "Transformer"])
def test_batches_give_what_each_source_gives_alone(decoder: dict[str, Any], batch_size: int) -> None:
    """In the order given. Catches: results in the order of the batches; limits by the longest source of a batch; the
    source of another row after a row has left."""
    given, config = model(**decoder), BeamConfig(beam_size=3, max_tokens=15, length_ratio=2, length_extra=1)
    found = search_all(given, SOURCES, EOS, config, batch_size=batch_size)
    for source, row in zip(SOURCES, found, strict=True):
        ragged = Ragged(torch.tensor([source]), torch.tensor([len(source)]))
        state = given.eval().start(ragged)
        (alone,) = beam_search(given, state, EOS, config, source_lengths=ragged.lengths).lists(EOS)
        assert [h.tokens for h in row] == [h.tokens for h in alone]
        for got, expected in zip(row, alone, strict=True):
            assert got.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
            assert got.score == pytest.approx(expected.score, abs=1e-4)
            assert len(got.tokens) <= 2 * len(source) + 1


def test_an_empty_source_and_no_source_at_all_are_answered() -> None:
    given = model()
    assert len(search_all(given, [[], [1]], EOS, SHORT)) == 2
    assert len(search_all(given, [[]], EOS, SHORT)) == 1
    assert search_all(given, [], EOS) == []
