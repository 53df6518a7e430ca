"""The laws of layers that see both sides: those of causal layers that do not speak of time, and a few of their own."""

import pytest
import torch
from hypothesis import given
from law_cases import Case, Situation, assert_same, cases, results, situations
from test_layer_laws import (  # noqa: F401  (written once: here they meet the layers of the fixture below)
    test_contract_sizes_and_kinds,
    test_cutting_an_empty_piece_changes_nothing,
    test_rows_a_batch_gives_what_its_rows_give_alone,
    test_rows_padding_changes_neither_real_outputs_nor_the_final_state,
)

from elman.errors import ConfigError
from elman.ops import taps
from elman.ops.state import map_state
from elman.recurrence import using

TWO_WAY = cases(causal=False)


@pytest.fixture(params=TWO_WAY, ids=str, scope="session")
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def test_two_way_layers_are_left_out_of_the_causal_laws_by_their_attribute() -> None:
    assert {case.name for case in TWO_WAY} >= {"bidirectional"}
    assert not {str(case) for case in TWO_WAY} & {str(case) for case in cases()}


@given(situation=situations())
def test_no_state_means_the_initial_state(case: Case, situation: Situation) -> None:
    """Planted: the way back began with ones where no state was given."""
    layer, x = situation.layer(case), situation.x()
    with case.running():
        assert_same(layer(x), layer(x, layer.initial_state(situation.batch)))


@given(situation=situations())
def test_full_lengths_change_nothing(case: Case, situation: Situation) -> None:
    """Planted: rows with lengths were turned round one position too far."""
    layer, x = situation.layer(case), situation.x()
    state, full = situation.state(layer), torch.full((situation.batch,), situation.time)
    with case.running():
        plain = results(layer, type(layer).forward, x, state)
        assert_same(results(layer, lambda layer, x, state: layer(x, state, full), x, state), plain)


@given(situation=situations())
def test_nothing_changes_the_state_or_the_input_it_was_given(case: Case, situation: Situation) -> None:
    layer, x = situation.layer(case), situation.x()
    state = situation.state(layer)
    kept, kept_x = map_state(torch.clone, state), x.clone()
    with case.running(), torch.no_grad():
        layer(x, state, situation.lengths)
        layer(x, state)
    assert_same((state, x), (kept, kept_x), 0)


@given(situation=situations())
def test_recording_has_no_effect(case: Case, situation: Situation) -> None:
    """And is as long as the sequence. Planted: the recorded pass turned the outputs round once less."""
    layer, x = situation.layer(case), situation.x()
    state = situation.state(layer)
    with using("reference"):
        plain = layer(x, state, situation.lengths)
    with taps.record("*") as recording:
        assert_same(layer(x, state, situation.lengths), plain, 0)
    assert recording.sites()
    for site in recording:
        assert recording[site].shape[:2] == (situation.batch, situation.time)


def test_there_is_no_step(case: Case) -> None:
    layer = case.layer()
    with pytest.raises(ConfigError, match=f"{case.name!r} is bidirectional.*left-to-right.*lstm"):
        layer.step(torch.zeros(1, 3, dtype=torch.float64), layer.initial_state(1))
