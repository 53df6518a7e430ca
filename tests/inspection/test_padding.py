"""Padding is never seen, whatever the layer; and a layer that sees it is found and named."""

from contextlib import contextmanager
from unittest import mock

import pytest
from inspected_texts import classifier, language

from elman.errors import ConfigError
from elman.inspection.padding import padding, padding_figure
from elman.layers import LAYERS

NOT_ALONE = {"cross-attention", "positions"}  # need a source, or stand below all layers
CAUSAL = [name for name in LAYERS if LAYERS[name].causal and name not in NOT_ALONE]
BOTH_WAYS = [name for name in LAYERS if not LAYERS[name].causal]


@pytest.mark.parametrize("name", CAUSAL)
def test_no_layer_that_reads_one_way_sees_padding(name):
    """Seen to fail with shares of attention taken over the rows of padding, too."""
    for one in padding(language([name]), (1, 9)):
        assert not one.seen, one
        assert all(share == 0 for share in one.mass.values())


@pytest.mark.parametrize("name", BOTH_WAYS)
@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_no_layer_that_sees_both_sides_sees_padding(name, pooling):
    for one in padding(classifier([name], pooling=pooling), (1, 9)):
        assert not one.seen, one
        assert all(share == 0 for share in one.mass.values())


@contextmanager
def deaf(kind):
    """A layer that is not told where texts end."""
    heard = kind.forward
    with mock.patch.object(kind, "forward", lambda self, x, state=None, lengths=None: heard(self, x, state)):
        yield


def test_attention_without_a_mask_is_found():
    with deaf(LAYERS["two-way-attention"]):
        look = classifier(["two-way-attention"], pooling="mean")
        (one,) = padding(look, (5,))
        figure = padding_figure(look, pads=(5,))
    assert one.seen
    assert one.culprit.startswith("layers.0.two-way-attention")
    assert 0.2 < one.mass["layers.0.two-way-attention.weights"] < 0.8
    assert figure.notes[0].startswith("WARNING: padding changes scores")
    assert "lies on padding: its mask is missing" in figure.notes[1]


def test_a_layer_that_reads_on_is_named_by_the_first_site_that_changes():
    """Backwards, padding comes first for those who do not know of it; the lower layer is not to blame."""
    bidirectional = LAYERS["bidirectional"]
    with deaf(bidirectional):
        (one,) = padding(classifier(["lstm", "bidirectional"], pooling="mean"), (3,))
    assert one.seen
    assert one.culprit.startswith("layers.1.bidirectional")
    assert one.mass == {}


def test_what_is_well_is_told_so():
    told = " ".join(padding_figure(classifier([{"two-way-attention": {"num_heads": 2}}])).notes)
    assert "Padding changes no score" in told
    assert "No attention lies on padding" in told
    assert "No layer of this model has attention" in padding_figure(language(["lstm"])).notes[1]
    with pytest.raises(ConfigError, match="from 1 on, not 0"):
        padding(language(["lstm"]), (0,))
