"""Sequences drawn by an encoder-decoder: as probable as it says, whatever stands beside them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from elman.batches import Ragged
from elman.generation import (
    BeamConfig,
    Hypotheses,
    SamplingConfig,
    beam_search,
    forced_log_probs,
    random_stream,
    sample_sequences,
)
from elman.models import TRANSLATORS

EOS = 0
SHORT = BeamConfig(beam_size=1, max_tokens=8)
KINDS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {},
    "transducer": {},
    "Transformer": {
        "encoder": {"pattern": ["two-way-attention", "feedforward"], "positions": "sinusoidal"},
        "decoder": {"pattern": ["attention", "cross-attention"], "context": [], "attention": None},
    },
}
SOURCE = Ragged(torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [2, 0, 0, 0]]), torch.tensor([4, 2, 1]))


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(3)
    kind = TRANSLATORS[request.param if request.param in TRANSLATORS else "encoder-decoder"]
    settings: dict[str, Any] = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8}}
    for side, more in KINDS[request.param].items():
        settings[side] |= more
    found = kind(kind.Config.make(settings), 7, 7, EOS).eval()
    for parameter in found.parameters():
        parameter.data *= 2
    return found


def drawn(
    model: Any, source: Ragged, rules: SamplingConfig, numbers: list[int], config: BeamConfig = SHORT
) -> Hypotheses:
    streams = [random_stream(1, number) for number in numbers]
    with torch.inference_mode():
        state = model.start(source)
    return sample_sequences(model, state, EOS, config, rules, streams, source_lengths=source.lengths)


def texts(found: Hypotheses) -> list[list[int]]:
    return [one.tokens for (one,) in found.lists(EOS)]


def test_a_row_draws_the_same_in_any_company(model: Any) -> None:
    """Catches: limits of the longest row for all."""
    config = BeamConfig(beam_size=1, max_tokens=8, length_ratio=1, length_extra=1)
    together = drawn(model, SOURCE, SamplingConfig(), [4, 7, 9], config)
    for row, number in enumerate([4, 7, 9]):
        length = int(SOURCE.lengths[row])
        alone = Ragged(SOURCE.values[row : row + 1, :length], SOURCE.lengths[row : row + 1])
        assert texts(drawn(model, alone, SamplingConfig(), [number], config)) == [texts(together)[row]]
        assert int(together.lengths[row]) <= length + 1


def test_what_is_drawn_has_the_log_probability_that_is_told(model: Any) -> None:
    """Before temperature and the rest. Catches: that of the distribution which was drawn from."""
    found = drawn(model, SOURCE, SamplingConfig(temperature=2, top_k=5), [0, 1, 2])
    target = Ragged(found.tokens[:, 0], found.lengths[:, 0])
    torch.testing.assert_close(forced_log_probs(model, SOURCE, target), found.log_probs[:, 0], rtol=1e-4, atol=1e-4)


def test_without_temperature_it_is_greedy_search(model: Any) -> None:
    with torch.inference_mode():
        greedy = beam_search(model, model.start(SOURCE), EOS, SHORT)
    assert texts(drawn(model, SOURCE, SamplingConfig(temperature=0), [0, 1, 2])) == texts(greedy)


@pytest.mark.slow
def test_words_come_as_often_as_the_model_says(model: Any) -> None:
    """Catches: another temperature than was asked for."""
    rows = 4000
    source = Ragged(torch.tensor([[1, 2]]).repeat(rows, 1), torch.full((rows,), 2))
    found = drawn(model, source, SamplingConfig(), list(range(rows)), BeamConfig(beam_size=1, max_tokens=1))
    seen = torch.bincount(found.tokens[:, 0, 0], minlength=7) / rows
    with torch.inference_mode():
        logits: Tensor = model.step(torch.tensor([EOS]), model.start(Ragged(source.values[:1], source.lengths[:1])))[0]
    torch.testing.assert_close(seen, logits.float().softmax(-1)[0], rtol=0, atol=0.03)
