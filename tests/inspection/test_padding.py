"""Padding invariance of every layer; a layer that reads padding is found and named."""

from contextlib import contextmanager
from unittest import mock

import pytest
from inspected_texts import classifier, language

from elman.errors import ConfigError
from elman.inspection.padding import padding, padding_figure
from elman.layers import LAYERS

NOT_ALONE = {"cross-attention", "positions"}  # need a source, or other layers
CAUSAL = [name for name in LAYERS if LAYERS[name].causal and name not in NOT_ALONE]
BOTH_WAYS = [name for name in LAYERS if not LAYERS[name].causal]


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_layers_are_padding_invariant(name):
    """Catches the attention mass of padded queries included."""
    for one in padding(language([name]), (1, 9)):
        assert not one.seen, one
        assert all(share == 0 for share in one.mass.values())


@pytest.mark.parametrize("name", BOTH_WAYS)
@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_bidirectional_layers_are_padding_invariant(name, pooling):
    for one in padding(classifier([name], pooling=pooling), (1, 9)):
        assert not one.seen, one
        assert all(share == 0 for share in one.mass.values())


@contextmanager
def ignoring_lengths(layer):
    """A layer that ignores `lengths`."""
    forward = layer.forward
    with mock.patch.object(layer, "forward", lambda self, x, state=None, lengths=None: forward(self, x, state)):
        yield


def test_attention_without_a_mask_is_found():
    with ignoring_lengths(LAYERS["two-way-attention"]):
        inspected = classifier(["two-way-attention"], pooling="mean")
        (one,) = padding(inspected, (5,))
        figure = padding_figure(inspected, pads=(5,))
    assert one.seen
    assert one.culprit.startswith("layers.0.two-way-attention")
    assert 0.2 < one.mass["layers.0.two-way-attention.weights"] < 0.8
    assert figure.notes[0].startswith("WARNING: padding changes scores")
    assert "is on padding: its mask is missing" in figure.notes[1]


def test_a_layer_that_reads_padding_is_named_by_its_first_changed_site():
    """A backward layer reads padding first; the layer below is correct."""
    bidirectional = LAYERS["bidirectional"]
    with ignoring_lengths(bidirectional):
        (one,) = padding(classifier(["lstm", "bidirectional"], pooling="mean"), (3,))
    assert one.seen
    assert one.culprit.startswith("layers.1.bidirectional")
    assert one.mass == {}


def test_correct_models_are_reported_as_such():
    notes = " ".join(padding_figure(classifier([{"two-way-attention": {"num_heads": 2}}])).notes)
    assert "Padding changes no score" in notes
    assert "No attention is on padding" in notes
    assert "No layer of this model has attention" in padding_figure(language(["lstm"])).notes[1]
    with pytest.raises(ConfigError, match="from 1 on, not 0"):
        padding(language(["lstm"]), (0,))
