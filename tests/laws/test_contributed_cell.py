"""The cells of CONTRIBUTING.md keep every law: the tests find a new cell by its registered name.

Catches a step that sums up its outputs.
"""

from collections.abc import Iterator

import pytest
import test_recording_laws as recording
from contributed_cell import NAMES, contributed_cells
from hypothesis import given
from law_cases import Case, Situation, cases, situations
from test_layer_laws import check

from elman.layers.laws import LAWS

OF_RECORDING = [
    recording.test_recording_has_no_effect,
    recording.test_recording_has_no_effect_on_gradients,
    recording.test_recording_step_by_step_equals_recording_a_whole_sequence,
]


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with contributed_cells(tmp_path_factory.mktemp("cell")):
        [case] = [case for case in cases() if case.name == request.param]
        yield case


@pytest.mark.parametrize("law", LAWS)
@given(situation=situations())
def test_law(case: Case, law: str, situation: Situation) -> None:
    check(case, law, situation)


@pytest.mark.parametrize("law", OF_RECORDING)
def test_law_of_recording(case: Case, law) -> None:
    law(case=case)


def test_its_sites_are_the_taps_that_fire(case: Case) -> None:
    recording.test_the_sites_of_a_cell_are_the_taps_that_fire(case)
    recording.test_the_recorded_hidden_state_is_the_output(case.name)
