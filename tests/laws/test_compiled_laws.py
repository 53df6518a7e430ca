"""The compiled form equals the reference for every cell: outputs, final state and gradients.

Unlike the forms that are ready for any cell, it takes a while to make, so one layer stands for all situations.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from law_cases import SETTINGS, Case, Results, Situation, assert_same, real_positions, results, situations
from torch import Tensor

from elman.cells import CELLS
from elman.layers import SequenceLayer
from elman.ops.state import map_state, tensors
from elman.recurrence import using

CASES = [Case(name, settings, "compiled") for name in CELLS for settings in SETTINGS.get(name, [{}])]
LAYERS: dict[str, SequenceLayer] = {}


@pytest.fixture(autouse=True, scope="module")
def _unwritten_memory() -> Iterator[None]:
    """Torch fills new memory with NaN then, so that reading it before writing shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def layer_of(case: Case) -> SequenceLayer:
    return LAYERS.setdefault(str(case), case.layer(hidden_size=5))


def found_by(form: str, case: Case, layer: SequenceLayer, here: Situation, ragged: bool) -> Results:
    here = here._replace(input_size=3)
    kind = next(layer.parameters()).dtype
    x, state = here.x().to(kind), map_state(lambda part: part.to(kind), here.state(layer_of(case)))
    lengths = here.lengths if ragged else None
    real = None if lengths is None else real_positions(lengths, here.time)

    def run(layer: SequenceLayer, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        torch.default_generator.manual_seed(3)  # the same weights are dropped
        return layer(x, state, lengths)

    with using(form):
        return results(layer, run, x, state, real)


def check(case: Case, layer: SequenceLayer, here: Situation, ragged: bool, tolerance: float) -> None:
    assert_same(*(found_by(form, case, layer, here, ragged) for form in ("compiled", "reference")), tolerance=tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("ragged", [True, False])
@given(situation=situations())
def test_compiled_steps_equal_the_reference(case: Case, ragged: bool, situation: Situation) -> None:
    """Catches: a carried state that ignores ended rows; a matrix not transposed in backward."""
    check(case, layer_of(case), situation, ragged, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@given(situation=situations())
def test_compiled_steps_equal_the_reference_in_float32(case: Case, situation: Situation) -> None:
    """Within the rounding error of the reference: a norm of nearly equal values loses digits in both. Catches: a
    derivative of tanh that is wrong by a thousandth."""
    exact = layer_of(case)
    layer = LAYERS.setdefault(f"{case} in float32", deepcopy(exact).float())
    for ragged in (True, False):
        truth = found_by("reference", case, exact, situation, ragged)
        ours, theirs = (found_by(form, case, layer, situation, ragged) for form in ("compiled", "reference"))
        for (name, right), (_, found), (_, other) in zip(*(named(one) for one in (truth, ours, theirs)), strict=True):
            error, usual = (float((one - right).abs().max()) if one.numel() else 0.0 for one in (found, other))
            assert error <= 4 * usual + 1e-5 * (1 + float(right.abs().max() if right.numel() else 0.0)), name


def named(found: Results) -> list[tuple[str, Tensor]]:
    return [("outputs", found.outputs), *tensors(found.state), *found.gradients.items()]


@pytest.mark.parametrize("name", ["lstm", "residual"])
@given(situation=situations())
def test_compiled_steps_drop_the_same_weights(name: str, situation: Situation) -> None:
    """Catches: the whole matrix packed."""
    case = Case(name, {"weight_dropout": 0.5}, "compiled")
    layer = LAYERS.setdefault(f"{case} in training", case.layer(hidden_size=5).train())
    check(case, layer, situation, False, 1e-10)
