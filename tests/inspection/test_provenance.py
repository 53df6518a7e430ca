"""Provenance: figures carry the Python call that makes them again, or none."""

import importlib
from dataclasses import replace

import pytest
from inspected_texts import language

import elman
from elman.figures.provenance import LONGEST, call_of, source_of
from elman.inspection.attention import attention_figure
from elman.inspection.gradient_decay import UntrainedLayer
from elman.inspection.gradients import gradient_decay_figure, gradient_figure
from elman.inspection.padding import padding_figure
from elman.inspection.predictions import prediction_figure
from elman.inspection.unit_timelines import unit_timeline_figure
from elman.ops import taps

LOADED = "elman.load('runs/x').reading('a b')"


@pytest.fixture
def known(monkeypatch):
    """An inspected text with its call."""
    inspected = replace(language(["lstm", "attention"]), call=LOADED)
    monkeypatch.setattr(elman, "load", lambda run: elman)
    monkeypatch.setattr(elman, "reading", lambda text: inspected, raising=False)
    return inspected


def again(figure):
    """The result of the recorded call."""
    module = figure.command.partition("(")[0].rpartition(".")[0]
    importlib.import_module(module)
    return eval(figure.command, {"elman": elman})


@pytest.mark.parametrize(
    "make",
    [
        lambda inspected: attention_figure(inspected, "a label", layer=1, heads=[1], marked={"cat"}),
        gradient_figure,
        lambda inspected: prediction_figure(inspected, position=2, changes={"layers.0.lstm.gate.forget": 0.5}),
        lambda inspected: unit_timeline_figure(inspected, "x", [1, 2]),
        lambda inspected: padding_figure(inspected, pads=(2, 3)),
        lambda inspected: gradient_decay_figure(
            [UntrainedLayer.parse("rnn:radius=2"), UntrainedLayer("gru", {"hidden_size": 4})], length=9
        ),
    ],
)
def test_the_recorded_call_makes_the_same_figure(known, make):
    """Catches missing arguments."""
    figure = make(known)
    assert figure.command
    same = again(figure)
    assert replace(same, subtitle="").plain() == replace(figure, subtitle="").plain()
    assert figure.csv().splitlines()[-1] == f"# >>> {figure.command}"


def test_unknown_calls_are_not_recorded(known):
    """Catches an edit missing from the call."""
    assert gradient_figure(replace(known, call="")).command == ""
    with taps.edit({"layers.0.lstm.gate.forget": 0.5}):
        assert attention_figure(known).command == ""
    assert gradient_figure(replace(known, call="x" * LONGEST)).command == ""
    assert source_of([1, "a", None, {"b": (2.5, True)}]) == "[1, 'a', None, {'b': [2.5, True]}]"
    assert source_of([object()]) is None
    assert call_of(sorted, [2, 1], reverse=True).endswith("sorted([2, 1], reverse=True)")
