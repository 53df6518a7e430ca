"""A temperature makes probabilities of a classifier as right as they say, and leaves its answers as they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.evaluation.calibration import SPAN, fit_temperature


def drawn(temperature, several=False, texts=20_000):
    """Logits, and truth drawn from those divided by a temperature."""
    dice = np.random.default_rng(0)
    logits = dice.normal(scale=3, size=(texts, 4))
    if several:
        return logits, (dice.random(logits.shape) < 1 / (1 + np.exp(-logits / temperature))).astype(np.uint8)
    noise = dice.gumbel(size=logits.shape)
    return logits, (logits / temperature + noise).argmax(axis=1)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1, 3])
def test_the_temperature_that_truth_was_drawn_with_is_found(temperature, several):
    assert fit_temperature(*drawn(temperature, several)) == pytest.approx(temperature, rel=0.05)


@given(st.integers(2, 5), st.integers(1, 30), st.integers(0, 2**16))
def test_no_other_temperature_has_a_lower_loss(labels, texts, seed):
    dice = np.random.default_rng(seed)
    logits, truth = dice.normal(size=(texts, labels), scale=4), dice.integers(labels, size=texts)

    def loss(temperature):
        scaled = logits / temperature
        return (np.logaddexp.reduce(scaled, axis=1) - scaled[np.arange(texts), truth]).mean()

    found = fit_temperature(logits, truth)
    if (logits.argmax(axis=1) == truth).all():
        assert found == 1 or loss(found) < loss(1 / SPAN)
        return
    assert all(loss(found) <= loss(other) + 1e-9 for other in np.geomspace(1 / SPAN, SPAN, 50))


def test_answers_that_are_all_right_change_nothing_and_those_all_wrong_have_a_finite_temperature():
    """Catches probabilities of .99999 because a few validation texts were easy."""
    logits = np.array([[5.0, 0.0], [9.0, 1.0]])
    assert fit_temperature(logits, np.array([0, 0])) == 1
    assert fit_temperature(logits, np.array([1, 1])) == pytest.approx(SPAN)
    assert np.isfinite(fit_temperature(1e4 * logits, np.eye(2, dtype=np.uint8)))
    assert fit_temperature(logits - 3, np.array([[1, 0], [1, 0]])) == 1
