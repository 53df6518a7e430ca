"""Several models as one."""

from itertools import permutations

import pytest
import torch
from torch import Tensor

from benchmarks.beam import search_all
from elman.batches import Ragged
from elman.errors import ConfigError
from elman.generation import BeamConfig, Ensemble, forced_log_probs
from elman.models import EncoderDecoder, EncoderDecoderConfig, Transducer, TransducerConfig

EOS = 0
SEARCH = BeamConfig(beam_size=3, max_tokens=8)
SOURCES = [[1, 2], [3], [4, 5, 6, 1, 2], [2, 2, 2]]
SOURCE = Ragged(torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1]))
TARGET = Ragged(torch.tensor([[3, 2, 1, EOS], [5, EOS, 0, 0]]), torch.tensor([4, 2]))


def model(seed: int, words: int = 7) -> EncoderDecoder:
    torch.manual_seed(seed)
    settings = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8}}
    if seed % 2:
        found: EncoderDecoder = Transducer(TransducerConfig.make(settings), 7, words, EOS)
    else:
        found = EncoderDecoder(EncoderDecoderConfig.make(settings), 7, words, EOS)
    for parameter in found.parameters():
        parameter.data *= 3
    return found.eval()


def written(ensemble: EncoderDecoder | Ensemble) -> list[list[list[int]]]:
    return [[one.tokens for one in row] for row in search_all(ensemble, SOURCES, EOS, SEARCH)]


def probabilities(ensemble: EncoderDecoder | Ensemble) -> Tensor:
    """Of the first two words, under the target."""
    with torch.no_grad():
        first, state = ensemble.step(torch.tensor([EOS, EOS]), ensemble.start(SOURCE))
        second, _ = ensemble.step(TARGET.values[:, 0], state)
    return torch.stack([first, second]).softmax(-1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("count", [1, 2])
def test_models_that_are_equal_are_together_what_each_is_alone(count: int, seed: int) -> None:
    """Catches: a sum instead of a mean; the mean of logits."""
    alone, together = model(seed), Ensemble([model(seed) for _ in range(count)])
    assert written(together) == written(alone)
    torch.testing.assert_close(probabilities(together), probabilities(alone))
    torch.testing.assert_close(
        forced_log_probs(together, SOURCE, TARGET), forced_log_probs(alone, SOURCE, TARGET), atol=1e-5, rtol=1e-5
    )


def test_a_word_has_the_mean_of_its_probabilities() -> None:
    models = [model(seed) for seed in range(3)]
    expected = torch.stack([probabilities(one) for one in models]).mean(0)
    torch.testing.assert_close(probabilities(Ensemble(models)), expected)


def test_order_does_not_matter() -> None:
    models = [model(seed) for seed in range(3)]
    for order in permutations(models):
        assert written(Ensemble(order)) == written(Ensemble(models))
        torch.testing.assert_close(probabilities(Ensemble(order)), probabilities(Ensemble(models)))


def test_what_is_searched_has_the_probability_that_forcing_gives_it() -> None:
    ensemble = Ensemble([model(0), model(1)])
    (best, *_), *_ = search_all(ensemble, [[1, 2, 3]], EOS, SEARCH)
    target = torch.tensor([[*best.tokens, EOS]])
    source = Ragged(SOURCE.values[:1], SOURCE.lengths[:1])
    forced = forced_log_probs(ensemble, source, Ragged(target, torch.tensor([target.shape[1]])))
    if len(best.tokens) < SEARCH.max_tokens:  # else it was cut
        assert best.log_prob == pytest.approx(float(forced), abs=1e-4)


def test_models_of_two_vocabularies_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"one vocabulary, but got 7 tokens .* and 8 tokens"):
        Ensemble([model(0), model(0, words=8)])
    with pytest.raises(ConfigError, match="at least one"):
        Ensemble([])
