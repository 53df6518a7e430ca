"""Search spaces: what may be written, and what is drawn from it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.comparison.spaces import Choice, Interval, parse_spaces, read_space, read_spaces
from elman.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "space"),
    [
        ("log(1e-4,1e-2)", Interval(1e-4, 1e-2, log=True)),
        ("uniform(0, 0.5)", Interval(0.0, 0.5)),
        ("interval(0,1)", Interval(0.0, 1.0)),
        ("int(16,128)", Interval(16, 128, whole=True)),
        ("logint(16,1024)", Interval(16, 1024, log=True, whole=True)),
        ("0.1,0.3,0.5", Choice((0.1, 0.3, 0.5))),
        ("1e-4,1e-3", Choice((1e-4, 1e-3))),
        ("rnn,lstm", Choice(("rnn", "lstm"))),
        ("choice(true,false)", Choice((True, False))),
        ("[rnn],[{attention: {num_heads: 2}}, swiglu]", Choice((["rnn"], [{"attention": {"num_heads": 2}}, "swiglu"]))),
        ("range(1,4)", Choice((1, 2, 3))),
        ("range(0,0.3,0.1)", Choice((0.0, 0.1, 0.2))),
        ([1, 2], Choice((1, 2))),
    ],
)
def test_a_space_is_read_as_it_is_written(written, space):
    assert read_space("key", written) == space


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("log(0,1)", "a log scale begins above 0"),
        ("uniform(1,0)", "the lower end, 1, is not below the upper one, 0"),
        ("int(1.5,3)", "its ends are whole"),
        ("log(1)", "write log(low,high), with two numbers"),
        ("log(a,b)", "write log(low,high), with two numbers"),
        ("lgo(1,2)", "no space 'lgo' (did you mean 'log'?)"),
        ("0.1", "two values or more"),
        ("", "two values or more"),
        ("1,1", "two values or more"),
        ("range(1)", "write range(start,stop)"),
        ("range(0,100000)", "100,000 values are too many"),
        ("[1,", "not valid YAML"),
    ],
)
def test_a_wrong_space_names_its_setting_and_the_remedy(written, problem):
    with pytest.raises(ConfigError) as caught:
        read_space("model.dropout", written)
    text = str(caught.value)
    assert text.startswith("--set model.dropout=")
    assert problem in text


def test_a_word_without_a_space_is_refused():
    with pytest.raises(ConfigError, match="write --set KEY=SPACE"):
        parse_spaces(["training.learning_rate"])


def test_sections_come_before_their_settings():
    """Else the model would replace its own dropout."""
    assert list(read_spaces({"model.dropout": "0,1", "model": "rnn,gru"})) == ["model", "model.dropout"]


intervals = st.tuples(st.integers(1, 500), st.integers(1, 500), st.booleans(), st.booleans()).map(
    lambda one: Interval(one[0], one[0] + one[1], one[2], one[3])
)


@given(intervals, st.integers(0, 2**32))
def test_draws_lie_in_the_interval_and_have_a_place_there(space, seed):
    value = space.draw(np.random.default_rng(seed))
    assert space.low <= value <= space.high
    assert 0 <= space.place(value) <= 1
    assert float(f"{value:.4g}") == value or value in (space.low, space.high) or space.whole
    assert isinstance(value, int) or not space.whole


@pytest.mark.parametrize("log", [False, True])
def test_draws_are_even_on_the_scale_of_the_space(log):
    space, dice = Interval(1e-4, 1e-1, log=log), np.random.default_rng(1)
    places = np.sort([space.place(space.draw(dice)) for _ in range(2000)])
    assert np.abs(places - np.linspace(0, 1, 2000)).max() < 1.63 / math.sqrt(2000)  # Kolmogorov-Smirnov, p = 0.01


def test_whole_numbers_at_the_ends_are_as_likely_as_others():
    space, dice = Interval(1, 4, whole=True), np.random.default_rng(1)
    counts = np.bincount([space.draw(dice) for _ in range(4000)], minlength=5)[1:]
    assert counts.min() > 900
