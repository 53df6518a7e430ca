"""Before a run starts it says what runs each layer, wherever the layer stands in the model."""

import pytest

from elman.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from elman.models.tagger import Tagger
from elman.models.text_reader import Classifier
from elman.pipeline.recipe import Recipe
from elman.pipeline.session import explain
from elman.recurrence import using

TWO_WAYS = {"bidirectional": {"layer": "gru"}}


def told(model) -> list[str]:
    return explain(model, Recipe.make({"training": {"batch_size": 8, "sequence_length": 16}}))


def test_a_tagger_tells_of_its_words_and_of_their_characters() -> None:
    """Catches: only layers of the stack were asked."""
    config = Tagger.Config.make({"hidden_size": 8, "pattern": [TWO_WAYS]})
    model = Tagger(config, 20, 10, 3)
    lstm, gru = told(model)
    assert "unequal length" in lstm
    assert "unequal length" in gru
    with using("reference"):
        assert told(model) == ["both ways: reference: the plain loop, as asked"] * 2


def test_an_encoder_tells_of_both_ways_and_inner_layers_do_not_speak_again() -> None:
    encoder = {"hidden_size": 8, "pattern": [TWO_WAYS, "lstm"]}
    config = EncoderDecoderConfig.make({"encoder": encoder, "decoder": {"hidden_size": 8, "pattern": ["rnn"]}})
    lines = told(EncoderDecoder(config, 20, 20, 0))
    assert [line.startswith("both ways: ") for line in lines[:3]] == [True, False, False]
    assert sum("unequal length" in line for line in lines) == 3


@pytest.mark.parametrize("pattern", [[TWO_WAYS], [{"bidirectional": {"layer": "window"}}]])
def test_a_classifier_tells_of_every_inner_layer(pattern: list) -> None:
    model = Classifier(Classifier.Config.make({"hidden_size": 8, "pattern": pattern}), 20, 2)
    (line,) = told(model)
    assert line.startswith("both ways: ")
