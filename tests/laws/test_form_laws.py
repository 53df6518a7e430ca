"""Every fast form of the recurrence equals the reference in outputs, final state and gradients."""

from typing import Any

import pytest
import torch
from hypothesis import given
from law_cases import SETTINGS, Case, Results, Situation, assert_same, ready_forms, real_positions, results, situations
from torch import Tensor

from elman.cells import CELLS
from elman.layers import SequenceLayer
from elman.ops.state import map_state
from elman.recurrence import using

FAST = [
    Case(name, settings, form)
    for name in CELLS
    for settings in SETTINGS.get(name, [{}])
    for form in ready_forms(Case(name, settings, "auto").layer().cell)
    if form != "reference"
]


def both(case: Case, layer: SequenceLayer, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Results, Results]:
    real = None if lengths is None else real_positions(lengths, x.shape[1])

    def run(layer: SequenceLayer, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        torch.default_generator.manual_seed(3)  # the same weights are dropped
        return layer(x, state, lengths)

    found = []
    for form in (case.form, "reference"):
        with using(form):
            found.append(results(layer, run, x, state, real))
    return found[0], found[1]


@pytest.mark.parametrize("case", FAST, ids=str)
@pytest.mark.parametrize("ragged", [True, False])
@given(situation=situations())
def test_a_fast_form_equals_the_reference(case: Case, ragged: bool, situation: Situation) -> None:
    """Catches: gates in another order; the state returned in the order of sorted rows; an extra bias forgotten;
    a gradient cut by detaching the weights."""
    layer = situation.layer(case)
    x, state = situation.x(), situation.state(layer)
    assert_same(*both(case, layer, x, state, situation.lengths if ragged else None))


@pytest.mark.parametrize("case", FAST, ids=str)
@given(situation=situations())
def test_a_fast_form_equals_the_reference_in_float32(case: Case, situation: Situation) -> None:
    """The kernels used in practice: oneDNN's LSTM has no float64. Catches: memory and hidden state exchanged."""
    layer = situation.layer(case).float()
    x, state = situation.x().float(), map_state(Tensor.float, situation.state(situation.layer(case)))
    for lengths in (None, situation.lengths):
        assert_same(*both(case, layer, x, state, lengths), tolerance=1e-5)


@pytest.mark.parametrize("case", FAST, ids=str)
@given(situation=situations())
def test_a_fast_form_drops_the_same_weights(case: Case, situation: Situation) -> None:
    """Catches: the vendor's call read the whole recurrent matrix."""
    case = case._replace(settings={**case.settings, "weight_dropout": 0.5})
    layer = situation.layer(case).train()
    x, state = situation.x(), situation.state(situation.layer(case))
    assert_same(*both(case, layer, x, state, None))


def test_there_are_fast_forms_to_compare() -> None:
    assert {case.name for case in FAST} >= {"rnn", "gru", "lstm"}
    assert {case.form for case in FAST} >= {"vendor"}
