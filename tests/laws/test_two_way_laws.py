"""The laws of bidirectional layers: those that are not about causality, and a few of their own."""

import pytest
import torch
from hypothesis import given
from law_cases import Case, Situation, assert_same, cases, results, situations
from test_layer_laws import check

from elman.errors import ConfigError
from elman.layers.laws import LAWS
from elman.ops import taps
from elman.recurrence import using

TWO_WAY = cases(causal=False)


@pytest.fixture(params=TWO_WAY, ids=str, scope="session")
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def test_two_way_layers_are_left_out_of_the_causal_laws_by_their_attribute() -> None:
    assert {case.name for case in TWO_WAY} >= {"bidirectional"}
    assert not {str(case) for case in TWO_WAY} & {str(case) for case in cases()}


@pytest.mark.parametrize("law", [name for name, law in LAWS.items() if not law.causal])
@given(situation=situations())
def test_law(case: Case, law: str, situation: Situation) -> None:
    """Seen to fail where the backward direction began with ones instead of its initial state."""
    check(case, law, situation)


@given(situation=situations())
def test_full_lengths_change_nothing(case: Case, situation: Situation) -> None:
    """Catches: rows with lengths were reversed one position too far."""
    layer, x = situation.layer(case), situation.x()
    state, full = situation.state(layer), torch.full((situation.batch,), situation.time)
    with case.running():
        plain = results(layer, type(layer).forward, x, state)
        assert_same(results(layer, lambda layer, x, state: layer(x, state, full), x, state), plain)


@given(situation=situations())
def test_recording_has_no_effect(case: Case, situation: Situation) -> None:
    """A recording is as long as the sequence. Catches: the recorded pass did not reverse its outputs."""
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
