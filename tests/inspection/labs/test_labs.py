"""Labs: the measurements of each fall into the ranges of five seeds, and its page has everything."""

import re

import pytest
from drawn_styles import drawn_styles

from elman.errors import ConfigError, UnknownName
from elman.figures.figure import share_palette
from elman.inspection.labs import LABS, find
from elman.inspection.labs.lab import Lab, Result
from elman.inspection.small_models import reviews
from elman.plain_yaml import parse_yaml

QUICK = ("permutation", "gradient-distance", "n-grams")
every_lab = pytest.mark.parametrize(
    "name", [name if name in QUICK[:1] else pytest.param(name, marks=pytest.mark.slow) for name in LABS]
)


@every_lab
def test_a_lab_falls_into_its_ranges_and_writes_its_page(name: str) -> None:
    report = LABS[name].run(seed=0)
    assert not report.outside(), report.rows()
    page = report.html(f"elman lab run {name}")
    assert page.count("<svg ") == len(report.found.figures)
    assert not re.search(r"https?://(?!www\.w3\.org/)", page)
    styles = drawn_styles(share_palette(report.found.figures))
    assert all(len(found) == 1 for found in styles.values()), "a label keeps its style in all panels of a page"
    assert all(word in page for word in ("Question.", "Numbers", "Answer", f"elman lab run {name}"))
    assert all(
        word in page
        for word in ("What to try next", f'LABS["{name}"].run(seed=0)'.replace('"', "&quot;"), "def experiment")
    )
    panels = [panel for figure in report.found.figures for panel in figure.panels]
    for panel in panels:
        axes = [
            getattr(panel, axis) for axis in ("x_label", "y_label", "row_axis", "column_axis") if hasattr(panel, axis)
        ]
        assert all(axes), f"an axis without a name: {panel.kind} {panel.title}"
    drawn = [str(panel) for panel in panels]
    assert len({*drawn}) == len(drawn), "nothing is drawn twice"
    assert len(page) < 1_000_000


def test_every_lab_has_a_question_and_an_answer() -> None:
    for name, lab in LABS.items():
        assert lab.name == name
        assert "?" in lab.question
        assert len(lab.answer) > 50
        assert all(low <= high for low, high in lab.expected.values())


@pytest.mark.parametrize("name", LABS)
def test_ideas_to_try_name_settings_that_the_lab_has(name: str) -> None:
    lab = LABS[name]
    assert lab.settings
    assert lab.try_next
    for idea, why in lab.try_next.items():
        setting, _, value = idea.partition("=")
        assert lab._checked(setting, parse_yaml(value)) != lab.settings[setting]
        assert why.endswith("?")


def test_settings_change_the_experiment_and_its_page() -> None:
    lab = LABS["gradient-distance"]
    report = lab.run(seed=0, size=16, length=40, distance=20, forget_bias=4)
    assert "lstm:forget_bias=4, log10 norm at distance 20" in report.found.measured
    assert "width 16, 40 steps" in report.found.figures[0].subtitle
    assert report.outside() == []  # ranges are known of the question's settings only
    assert report.plain()["settings"] == {"size": 16, "length": 40, "distance": 20, "forget_bias": 4.0}
    page = report.html()
    assert "run(seed=0, size=16, length=40, distance=20, forget_bias=4.0)" in page
    exec(report.python().partition("open(")[0], made := {})
    assert made["report"].found.measured == report.found.measured
    same = lab.run(seed=0, size=64)
    assert same.changes == {}
    assert same.outside() == []
    with pytest.raises(UnknownName, match="did you mean 'size'"):
        lab.run(sise=3)
    for wrong in ({"size": "large"}, {"size": 0}, {"size": 1.5}, {"forget_bias": True}):
        with pytest.raises(ConfigError):
            lab.run(**wrong)


def test_measurements_outside_their_ranges_are_reported() -> None:
    """Catches ranges that were ignored."""
    lab = Lab(
        "x",
        "topic",
        "why?",
        "so",
        {"a": (0, 1), "b": (0, 1)},
        lambda seed, _: Result([], {"a": 2, "b": 1}),
    )
    report = lab.run()
    assert report.outside() == ["a"]
    assert [row[-1] for row in report.rows()] == ["no", "yes"]
    assert report.plain()["outside"] == ["a"]


def test_reviews_mean_what_they_are_labelled() -> None:
    found = {review.text: review.labels[0] for review in reviews(3000, 0)}
    assert found["the movie was great"] == "positive"
    for text, label in found.items():
        good = text.split()[-1] in ("great", "good", "funny", "clever", "moving", "fresh")
        assert (label == "positive") == (good != ("not" in text.split()))
    with pytest.raises(UnknownName, match="hidden-state"):
        find(LABS, "hiden-state")
