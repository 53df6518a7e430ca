"""The laws of sequence layers (elman/layers/laws.py), for every registered layer in every form that can run.

Each law was seen to fail with these bugs:
    contract        output_size was the input's; outputs as wide as hidden_size, whatever the last layer set
    values          a step wrote the new state into the old one
    rows            some of the batch's mean leaked in; rows of the vendor kernel not put back in order
    causality       the input shifted by one, so that each step saw its successor
    agreement       forward dropped the initial state; the state detached in a step; gates in another order
    initial state   ones instead of zeros where no state is given
    cutting         the final state detached; rows that had ended lost their state in the next piece
    empty sequence  an empty sequence returned the initial state
    padding         lengths off by one (each way); the final state taken after the last padded position; rows of length
                    0 got zeros
"""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from law_cases import Case, Situation, assert_same, situations

from elman.layers import LAYERS
from elman.layers.laws import LAWS


@pytest.mark.parametrize("law", LAWS)
@given(situation=situations())
def test_law(case: Any, law: str, situation: Situation) -> None:
    """Other files apply it to their own cases, too."""
    check(case, law, situation)


def check(case: Any, law: str, situation: Situation) -> None:
    assume(situation.time > 1 or law not in ("causality", "cutting"))
    trial = situation.trial(situation.layer(case))
    with nullcontext() if law == "empty sequence" else case.running():  # which vendor kernels do not take
        found, expected = LAWS[law].check(trial)
    assert_same(found, expected, tolerance=0 if LAWS[law].exact else 1e-10)


def test_a_layer_is_of_its_registered_class_and_size(case: Case) -> None:
    layer = case.layer(input_size=5)
    assert isinstance(layer, LAYERS[case.name])
    assert layer.input_size == 5


def test_a_layer_trains_after_it_ran_in_inference_mode(case: Case) -> None:
    """A tensor that a layer made in inference mode and kept cannot take part in training."""
    layer, x = case.layer(), torch.zeros(2, 3, 3, dtype=torch.float64)
    with case.running():
        with torch.inference_mode():
            layer(x)
            layer.step(x[:, 0], layer.initial_state(2))
        layer.train()(x.requires_grad_())[0].sum().backward()
    assert x.grad is not None
