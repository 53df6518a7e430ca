"""Attention maps: weights that sum to one, entropy and distance by definition, for every score function and layer."""

import math

import numpy as np
import pytest
import torch
from inspected_texts import classifier, language

from elman import recurrence
from elman.batches import collate
from elman.errors import ConfigError
from elman.inspection.attention import attention_figure, attention_maps, attention_mass, by_distance, entropy, is_cross
from elman.inspection.inspected_text import InspectedText
from elman.inspection.trace import weights_of
from elman.layers import LAYERS
from elman.models import Transducer, TransducerConfig
from elman.ops import taps


@pytest.mark.parametrize("score", ["dot", "scaled", "bilinear", "additive"])
@pytest.mark.parametrize("settings", [{}, {"positions": "alibi"}, {"window": 3}], ids=str)
def test_the_weights_of_every_score_function_sum_to_one(score: str, settings: dict) -> None:
    (maps,) = attention_maps(language([{"attention": {"num_heads": 2, "score": score, **settings}}]))
    assert maps.weights.shape == (2, 7, 7)
    torch.testing.assert_close(maps.weights.sum(-1), torch.ones(2, 7))
    if "window" in settings:
        assert not maps.weights[:, 5, :3].any(), "outside of the window"


def test_bidirectional_attention_has_weights_on_later_tokens() -> None:
    (maps,) = attention_maps(classifier([{"two-way-attention": {"num_heads": 2}}]))
    assert (maps.weights > 0).all()
    assert not is_cross(maps)


def test_entropy_distance_and_mass_follow_their_definitions() -> None:
    """Catches natural logarithms, and with distances of the wrong sign."""
    weights = torch.zeros(2, 4, 4)
    weights[0] = torch.eye(4)
    weights[1] = torch.tril(torch.ones(4, 4)) / torch.arange(1, 5)[:, None]
    bits = entropy(weights)
    assert bits[0].tolist() == [0, 0, 0, 0]
    assert bits[1].tolist() == pytest.approx([0, 1, math.log2(3), 2])
    lags, means = by_distance(weights)
    assert lags.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(means[0], [1, 0, 0, 0])
    np.testing.assert_allclose(means[1, 3], 0.25)
    assert attention_mass(weights, torch.tensor([True, False, False, False]))[0] == 0.25
    ahead, _ = by_distance(torch.full((1, 3, 3), 1 / 3))
    assert ahead.tolist() == [-2, -1, 0, 1, 2]


def test_layers_heads_and_marked_tokens_can_be_chosen() -> None:
    inspected = language([{"attention": {"num_heads": 2}}] * 2, residual=True)
    assert [len(panel.maps) for panel in attention_figure(inspected).panels[:2]] == [2, 2]
    one = attention_figure(inspected, layer=2, heads=[1], marked=["cat"])
    assert one.panels[0].title == "layers.1.attention.weights"
    assert list(one.panels[0].maps) == ["head 1"]
    assert "is on 'cat', 14.3% of the keys" in one.notes[0]
    for wrong in ({"layer": 3}, {"heads": [3]}):
        with pytest.raises(ConfigError, match="counted from 1"):
            attention_figure(inspected, **wrong)
    with pytest.raises(ConfigError, match="no layer of this model has attention"):
        attention_figure(language("lstm"))


def test_attention_pooling_shows_the_weight_of_each_token() -> None:
    inspected = classifier([{"bidirectional": {"layer": "gru"}}], pooling="attention")
    (panel,) = attention_figure(inspected).panels
    assert panel.values.sum() == pytest.approx(1, abs=1e-5)


def test_weights_equal_those_of_the_fused_kernel_and_padding_has_none() -> None:
    """Catches weights that were not masked at padding."""
    for name in ("attention", "two-way-attention"):
        torch.manual_seed(0)
        layer = LAYERS[name](LAYERS[name].Config.make({"num_heads": 2}), 8).eval()
        x, lengths = torch.randn(2, 6, 8), torch.tensor([6, 4])
        with torch.no_grad(), recurrence.using("vendor"):
            fused = layer(x, None, lengths)[0]
        with torch.no_grad(), taps.record("weights", "value", "read") as seen:
            looked = layer(x, None, lengths)[0]
        torch.testing.assert_close(looked[0], fused[0])
        torch.testing.assert_close(looked[1, :4], fused[1, :4])
        for row, length in enumerate(lengths.tolist()):
            weights = weights_of(name, seen["weights"][row])[:, :length]
            real = torch.arange(weights.shape[-1]) < length
            assert attention_mass(weights, ~real).max() == 0
            read = torch.einsum("htp,phd->thd", weights[..., :length], seen["value"][row, :length])
            torch.testing.assert_close(read, seen["read"][row, :length].view_as(read))


def test_a_transducer_has_the_emission_position_of_each_token() -> None:
    """Catches log-probabilities instead of probabilities."""
    torch.manual_seed(0)
    small = {"hidden_size": 8}
    model = Transducer(TransducerConfig.make({"encoder": small, "decoder": small}), 6, 7, 0).eval()
    batch = collate([{"source": np.array([1, 2, 3]), "target": np.array([4, 5, 0])}])
    tokens = {"decoder": ["<eos>", "d", "e"], "encoder": ["a", "b", "c"]}

    def run(copies: int, pads: int = 0) -> torch.Tensor:
        return model(batch.ragged("source"), batch.ragged("target"))

    (maps,) = attention_maps(InspectedText(model, run, tokens, "next", str, [4, 5, 0], "encoder.embedding"))
    assert is_cross(maps)
    assert (maps.queries, maps.keys) == (["4", "5", "0"], ["<start>", "a", "b", "c", "<end>"])
    torch.testing.assert_close(maps.weights.sum(-1), torch.ones(1, 3))
    assert not maps.weights[0, :, 0].any()
