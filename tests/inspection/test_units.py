"""Probing of units: planted ones are found on held-out text, noise is not; autocorrelation times of AR(1)."""

import numpy as np
import pytest
import torch
from inspected_texts import language

from elman.corpus.synthetic import LANGUAGES
from elman.errors import ConfigError, UnknownName
from elman.inspection.units import (
    ANNOTATORS,
    Activity,
    activity,
    autocorrelation_times,
    bracket_depth,
    correlations,
    inside_quotes,
    position_in_line,
    rank_units,
    subject_number,
    unit_figure,
)

dice = np.random.default_rng(0)


def test_annotators_annotate_what_their_names_say() -> None:
    assert inside_quotes(list('a "b c" d')).tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0]
    assert inside_quotes(["“so", "he", "said”", "x"]).tolist() == [1, 1, 0, 0]
    assert bracket_depth(list("a(b[c])d")).tolist() == [0, 1, 1, 2, 2, 1, 0, 0]
    assert bracket_depth(["(", "<eos>", "x"]).tolist() == [1, 0, 0]
    assert position_in_line(list("ab\nc")).tolist() == [1, 2, 0, 1]


def test_subject_number_is_that_of_the_language_until_the_verb() -> None:
    """Catches the number of the nearest noun."""
    sentences = "<eos> the cats near the old dog were happy <eos> my dog that the men see runs"
    words = sentences.split(" ")
    found = subject_number(words)
    known = [(word, value) for word, value in zip(words, found, strict=True) if np.isfinite(value)]
    assert known == [
        *((word, 1) for word in ["cats", "near", "the", "old", "dog"]),
        *((word, 0) for word in ["dog", "that", "the", "men", "see"]),
    ]
    agreement = LANGUAGES["agreement"]
    language = agreement(agreement.Config())
    for document, _ in zip(language.split("test"), range(50), strict=False):
        values = subject_number(["<eos>", *document.text.split()])
        nouns = [word for word in document.text.split() if word in language.number]
        assert values[np.isfinite(values)][0] == language.number[nouns[0]]
    assert np.isnan(subject_number(["no", "such", "words"])).all()
    chain = ["the", "cat", *3 * ["near", "the", "dog"]]  # more phrases than a sentence of the language has
    assert np.isfinite(subject_number(chain)[1])
    assert np.isnan(subject_number(chain + chain[2:])[-1])


def planted(noise: float = 0.3) -> Activity:
    lengths = dice.integers(1, 12, (60, 3))  # not periodic: a shift by one period would be no shift
    tokens = list("".join(f'{"a" * one}"{"b" * two}" {"c" * three}\n' for one, two, three in lengths))
    wanted = inside_quotes(tokens)
    states = dice.standard_normal((len(tokens), 30))
    states[:, 17] = -wanted + noise * dice.standard_normal(len(tokens))
    return Activity(tokens, {"hidden": states})


def test_a_planted_unit_is_found_above_the_baseline() -> None:
    best = rank_units(planted())[0]
    assert (best.annotator, best.site, best.unit, best.rising) == ("inside quotes", "hidden", 17, False)
    assert best.score > 0.6
    assert best.chance < 0.3


def test_a_unit_that_follows_in_the_selection_half_only_scores_nothing() -> None:
    """Catches the score of that half."""
    found = planted()
    half = len(found.tokens) // 2
    found.sites["hidden"][half:, 17] = dice.standard_normal(len(found.tokens) - half)
    (one,) = rank_units(found, ["inside quotes"])
    assert one.unit == 17
    assert one.score < 0.05


def test_noise_follows_nothing_on_held_out_text() -> None:
    found = planted()
    found.sites["hidden"][:, 17] = dice.standard_normal(len(found.tokens))
    assert all(one.score < 0.05 for one in rank_units(found))


def test_annotators_without_annotations_are_left_out_and_unknown_ones_refused() -> None:
    assert {one.annotator for one in rank_units(planted())} <= {"inside quotes", "place in line", "place in word"}
    assert [one.annotator for one in rank_units(planted(), ["inside quotes"])] == ["inside quotes"]
    with pytest.raises(UnknownName, match="inside quotes"):
        rank_units(planted(), ["inside quote"])


def test_correlations_equal_numpy_and_are_zero_for_constant_units() -> None:
    states, wanted = dice.standard_normal((50, 3)), dice.standard_normal(50)
    states[:, 2] = 1
    found = correlations(states, wanted)
    assert found[0] == pytest.approx(np.corrcoef(states[:, 0], wanted)[0, 1])
    assert found[2] == 0


def test_autocorrelation_times_are_those_of_known_processes() -> None:
    """AR(1), x' = a x + noise, has autocorrelation a^lag: below 1/e after -1/ln a. Seen to fail without centring."""
    shares = np.array([0.0, 0.5, 0.9, 0.95])
    states = np.zeros((40_000, 4))
    noise = dice.standard_normal(states.shape)
    for time in range(1, len(states)):
        states[time] = shares * states[time - 1] + noise[time]
    found = autocorrelation_times(states + 100)
    assert found.tolist()[:2] == [1, 2]
    assert found[2] == pytest.approx(-1 / np.log(0.9), abs=2)
    assert found[3] == pytest.approx(-1 / np.log(0.95), abs=4)


def test_the_figure_names_units_and_refuses_short_texts() -> None:
    inspected = language("lstm", ids=tuple(torch.randint(1, 10, (200,)).tolist()))
    figure = unit_figure(inspected)
    assert "layers.0.lstm.memory" in " ".join(figure.notes)
    assert "candidate" not in " ".join(figure.notes)
    by_unit = next(panel for panel in figure.panels if panel.title == "Autocorrelation time by unit")
    units, steps = by_unit.lines["layers.0.lstm.memory"]
    assert list(units) == list(range(8))
    assert steps.tolist() == autocorrelation_times(activity(inspected).sites["layers.0.lstm.memory"]).tolist()
    with pytest.raises(ConfigError, match="too few"):
        unit_figure(language("lstm"))
    with pytest.raises(ConfigError, match="no layer taps a state"):
        unit_figure(language("feedforward", ids=(1,) * 100))
    assert set(ANNOTATORS) >= {"inside quotes", "bracket depth", "place in line", "subject number"}
