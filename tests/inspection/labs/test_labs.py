"""Labs: each asks, measures, answers, and falls into the ranges that five seeds gave."""

import re

import pytest

from elman.errors import UnknownName
from elman.inspection.labs import LABS, find
from elman.inspection.labs.lab import Expected, Lab, Result
from elman.inspection.labs.reviews import reviews

QUICK = ("permutation", "gradient-distance", "n-grams")
every_lab = pytest.mark.parametrize(
    "name", [name if name in QUICK[:1] else pytest.param(name, marks=pytest.mark.slow) for name in LABS]
)


@every_lab
def test_a_lab_falls_into_its_ranges_and_writes_its_page(name: str) -> None:
    report = LABS[name].run(seed=0)
    assert not report.outside(), report.rows()
    page = report.html(f"elman lab run {name}")
    assert page.count("<img ") == len(report.found.figures)
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert all(word in page for word in ("Question.", "Numbers", "Answer", f"elman lab run {name}"))
    assert len(page) < 1_000_000


def test_every_lab_asks_and_answers_in_words() -> None:
    for name, lab in LABS.items():
        assert lab.name == name
        assert "?" in lab.question
        assert len(lab.answer) > 50
        assert all(expected.low <= expected.high for expected in lab.expected.values())


def test_numbers_outside_their_ranges_are_told() -> None:
    """Seen to fail with ranges that were not looked at."""
    lab = Lab(
        "x",
        "topic",
        "why?",
        "so",
        {"a": Expected(0, 1), "b": Expected(0, 1)},
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
