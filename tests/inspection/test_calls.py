"""A picture that was made in Python carries the call that makes it again, or none."""

import importlib
from dataclasses import replace

import pytest
from reading_cases import language

import elman
from elman.figures.provenance import LONGEST, call_of, spelled
from elman.inspection.attention import attention_figure
from elman.inspection.gradient_decay import Probe
from elman.inspection.gradients import fading_figure, model_figure
from elman.inspection.padding import padding_figure
from elman.inspection.predictions import prediction_figure
from elman.inspection.ribbons import ribbon_figure
from elman.ops import taps

LOADED = "elman.load('runs/x').reading('a b')"


@pytest.fixture
def known(monkeypatch):
    """A reading that says of itself how it is had."""
    reading = replace(language(["lstm", "attention"]), call=LOADED)
    monkeypatch.setattr(elman, "load", lambda run: elman)
    monkeypatch.setattr(elman, "reading", lambda text: reading, raising=False)
    return reading


def again(figure):
    """The call, typed in."""
    module = figure.command.partition("(")[0].rpartition(".")[0]
    importlib.import_module(module)
    return eval(figure.command, {"elman": elman})


@pytest.mark.parametrize(
    "make",
    [
        lambda reading: attention_figure(reading, "a label", layer=1, heads=[1], marked={"cat"}),
        model_figure,
        lambda reading: prediction_figure(reading, place=2, changes={"layers.0.lstm.gate.forget": 0.5}),
        lambda reading: ribbon_figure(reading, "x", [1, 2]),
        lambda reading: padding_figure(reading, pads=(2, 3)),
        lambda reading: fading_figure([Probe.parse("rnn:radius=2"), Probe("gru", {"hidden_size": 4})], length=9),
    ],
)
def test_the_call_below_a_picture_makes_it_again(known, make):
    """Seen to fail with arguments that are not at their default left out."""
    figure = make(known)
    assert figure.command
    same = again(figure)
    assert replace(same, of="").plain() == replace(figure, of="").plain()
    assert figure.csv().splitlines()[-1] == f"# >>> {figure.command}"


def test_what_cannot_be_known_is_not_told(known):
    """Seen to fail with an edit that nobody would know of."""
    assert model_figure(replace(known, call="")).command == ""
    with taps.edit({"layers.0.lstm.gate.forget": 0.5}):
        assert attention_figure(known).command == ""
    assert model_figure(replace(known, call="x" * LONGEST)).command == ""
    assert spelled([1, "a", None, {"b": (2.5, True)}]) == "[1, 'a', None, {'b': [2.5, True]}]"
    assert spelled([object()]) is None
    assert call_of(sorted, [2, 1], reverse=True).endswith("sorted([2, 1], reverse=True)")
