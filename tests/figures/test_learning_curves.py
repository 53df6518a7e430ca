"""Learning curves: valid images, y limits without the initial fall, no file without data."""

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from elman.figures.learning_curves import _limits, _moving_average, save_learning_curves


def records(steps: int, checks: int = 0) -> list[dict[str, Any]]:
    falling = [2 + 5 * math.exp(-index / 5) for index in range(steps)]
    found: list[dict[str, Any]] = [
        {"kind": "step", "tokens": 40_000 * index, "loss": loss} for index, loss in enumerate(falling)
    ]
    return found + [
        {"kind": "validation", "tokens": 400_000 * index, "valid_loss": 2.2 - index / 100} for index in range(checks)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "checks", "bound"), [(1, 0, None), (5, 1, 1.9), (200, 10, 1.9), (200, 40, None)])
def test_pictures_are_valid(tmp_path: Path, steps: int, checks: int, bound: float | None) -> None:
    svg, png = save_learning_curves(records(steps, checks), tmp_path / "plots", bound, "a run")
    assert [svg.name, png.name] == ["loss.svg", "loss.png"]
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    from PIL import Image

    with Image.open(png) as image:
        image.verify()
        assert image.size[0] > 800


@pytest.mark.parametrize(
    "nothing",
    [[], records(0, 3), [{"kind": "step", "tokens": 1, "loss": None}, {"kind": "step", "tokens": 2, "loss": math.nan}]],
    ids=["no records", "only validations", "no numbers"],
)
def test_nothing_to_draw_writes_nothing(tmp_path: Path, nothing: list[dict[str, Any]]) -> None:
    assert save_learning_curves(nothing, tmp_path / "plots") == []
    assert not (tmp_path / "plots").exists()


def test_the_tokens_are_counted_in_readable_units_and_the_best_possible_is_named(tmp_path: Path) -> None:
    """Catches matplotlib's own numbers (1e6 in a corner)."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text as text
        svg, _ = save_learning_curves(records(200, 10), tmp_path, 1.9)
    words = [element.text.strip() for element in ElementTree.parse(svg).iter() if element.text and element.text.strip()]
    assert {"2M", "4M", "training", "validation", "entropy of the language 1.900"} <= set(words)
    assert not any("e6" in word for word in words)


def test_the_fall_at_the_start_does_not_set_the_scale() -> None:
    """Catches: the highest loss of all as the top."""
    steps = [(index, 7.0 if index < 4 else 2.0 + index % 2) for index in range(100)]
    bottom, top = _limits(steps, [(50, 3.5)], 1.5)
    assert 3.5 < top < 4
    assert 1 < bottom < 1.5
    late = [*steps[:90], (90, 6.0), *steps[91:]]
    assert _limits(late, [], None)[1] > 6, "a late spike is news"
    assert _limits([(0, 7.0)], [], None)[1] > 7, "a single point is shown"


def test_the_moving_average_keeps_a_constant_and_the_ends() -> None:
    assert _moving_average([(index, 2.0) for index in range(50)], 5) == [(index, 2.0) for index in range(50)]
    falling = [(index, float(50 - index)) for index in range(50)]
    assert _moving_average(falling, 5)[0] == (0, 50.0)
    assert abs(_moving_average(falling, 5)[25][1] - 25) < 1e-9
