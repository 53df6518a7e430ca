"""One description, many forms: all have the same numbers, labels and command, and none asks the net for anything."""

import csv
import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from elman.errors import ConfigError
from elman.figures.figure import FORMATS, Figure
from elman.figures.panels import Bars, ColouredText, HeatMap, Lines, numbers
from elman.figures.render_matplotlib import colours
from elman.figures.scales import SCALES, SERIES, quantity_of

TOKENS = ["<eos>", "the", "$x_1$", "中文", " ", "\n", "", "<b>&amp;"]
dice = np.random.default_rng(0)
HEAT = HeatMap({"": dice.random((3, 8))}, ["0", "1", "2"], TOKENS, row_axis="unit", title="gates", quantity="gate")
PANELS = {
    "heat map": HEAT,
    "maps": HeatMap({f"head {n}": dice.random((8, 8)) for n in range(5)}, TOKENS, TOKENS, time="rows"),
    "lines": Lines(
        {"a": (np.arange(1, 9), 10.0 ** -np.arange(8)), "b": (np.arange(1, 9), np.zeros(8))},
        "distance",
        "norm",
        "y",
        1e-5,
        title="gradient",
    ),
    "bars": Bars(TOKENS, {"one": dice.random(8), "two": -dice.random(8)}, "influence"),
    "text": ColouredText(TOKENS, np.array([1.0, 2, 3, np.nan, 5, 6, 7, 8]), list("abcdefgh"), quantity="surprisal"),
}
every_panel = pytest.mark.parametrize("kind", PANELS)


def figure(*kinds: str) -> Figure:
    panels = [PANELS[kind] for kind in kinds]
    return Figure("A <title> & more", panels, ["What it says."], "run, step 3", command="elman inspect 'x'")


@every_panel
def test_every_kind_is_written_in_every_format(tmp_path: Path, kind: str) -> None:
    """Warnings are errors: no sign is missing, no label is taken for mathematics."""
    shown = figure(kind)
    for suffix in FORMATS:
        path = shown.save(tmp_path / "new" / f"picture.{suffix}")
        assert path.stat().st_size > 50
        assert b"elman inspect" in path.read_bytes(), "every one carries the command that made it"
    assert ElementTree.parse(tmp_path / "new" / "picture.svg").getroot().tag.endswith("svg")
    with Image.open(tmp_path / "new" / "picture.png") as image:
        image.verify()
        assert image.info["Description"] == "run, step 3 elman inspect 'x'"
    assert shown.image("svg") == shown.image("svg"), "the same picture is the same file"


@every_panel
def test_the_numbers_are_those_that_were_given(kind: str) -> None:
    """Seen to fail with rows and columns exchanged in the table."""
    panel, shown = PANELS[kind], figure(kind)
    *table, command = shown.csv().splitlines()[1:]
    rows = list(csv.reader(table))
    assert command == "# $ elman inspect 'x'"
    assert len(set(rows[0])) == len(rows[0]), "every column has a name of its own"
    if isinstance(panel, HeatMap):
        name = next(iter(panel.maps))
        found = {(int(row[1]), int(row[2])): float(row[5]) for row in rows[1:] if row[0] == name}
        assert all(found[i, j] == panel.maps[name][i, j] for i, j in np.ndindex(panel.maps[name].shape))
    assert len(shown.data) == len(rows) - 1
    json.dumps(shown.plain(), allow_nan=False)
    assert shown.plain()["command"] == "elman inspect 'x'"


def test_a_page_stands_alone_and_says_everything_in_words() -> None:
    """Seen to fail with a title that was not escaped."""
    page = figure(*PANELS).html()
    assert not re.search(r"(src|href)=[\"'](?!data:)", page)
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert "<title>A &lt;title&gt; &amp; more</title>" in page
    assert "<b>" not in page
    assert 'lang="en"' in page
    assert re.search(r'<img alt="[^"]*What it says', page)
    assert "elman inspect &#x27;x&#x27;" in page
    assert page.count("<details>") == len(PANELS)
    assert "<figure>" in figure("bars")._repr_html_()


@every_panel
@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_shows_it_within_its_width(kind: str, width: int) -> None:
    from rich.cells import cell_len

    text = figure(kind).text(width)
    assert "What it says." in text
    lines = text.splitlines()[2:]
    assert max(map(cell_len, lines)) <= width
    assert "\x1b" not in text
    assert "\x1b[" in figure("heat map").text(width, colour=True)


def test_many_units_are_pooled_to_fit_a_terminal() -> None:
    """Seen to fail without pooling."""
    wide = HeatMap({"": np.ones((500, 2))}, [str(n) for n in range(500)], ["a", "b"], quantity="gate")
    text = Figure("t", [wide]).text(60)
    assert "mean of" in text
    assert max(map(len, text.splitlines()[2:])) <= 60 + 30


def test_scales_are_fixed_for_each_quantity_so_that_pictures_compare() -> None:
    """Seen to fail with limits taken from the numbers."""
    for quantity, ends in {"gate": (0, 1), "state": (-1, 1), "attention": (0, 1)}.items():
        assert SCALES[quantity].limits([dice.random((3, 3)) * 7]) == ends
    assert SCALES["value"].limits([np.array([-2.0, 1.0])]) == (-2, 2)
    assert SCALES["value"].limits([np.array([np.inf, np.nan])]) == (-1, 1)
    assert quantity_of("layers.0.lstm.gate.forget") == "gate"
    assert quantity_of("decoder.cross-attention.weights") == "attention"
    assert quantity_of("layers.1.mamba.decay") == "gate"
    assert quantity_of("layers.0.lstm.memory") == "state"
    assert quantity_of("output.logits") == "value"


def test_colours_are_told_apart_by_colour_blind_eyes() -> None:
    """Deuteranopia by Viénot's matrix: neighbours among the series, and the ends of each scale, stay apart.
    Seen to fail with red beside green."""
    turn = np.array([[0.29, 0.71, 0.0], [0.29, 0.71, 0.0], [-0.02, 0.02, 1.0]])

    def seen(colour: str) -> np.ndarray:
        parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        return turn @ parts

    for one, other in pairwise(SERIES):
        assert np.linalg.norm(seen(one) - seen(other)) > 0.15, (one, other)
    for scale in SCALES.values():
        low, middle, high = (turn @ np.array(colours(scale)(share)[:3]) for share in (0.0, 0.5, 1.0))
        assert np.linalg.norm(low - high) > 0.3, scale
        assert min(np.linalg.norm(low - middle), np.linalg.norm(high - middle)) > 0.2, scale


def test_what_is_beyond_the_scale_has_its_last_colour() -> None:
    """Seen to fail: the most surprising words were painted as the least surprising ones."""
    drawn = Figure("t", [ColouredText(["x"], np.array([50.0]), quantity="surprisal")]).image("svg").decode()
    last = "#" + "".join(f"{round(255 * part):02x}" for part in colours(SCALES["surprisal"])(1.0)[:3])
    assert f"fill: {last}" in drawn


def test_an_unknown_format_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.svg, \.png, \.html"):
        figure("bars").save(tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6))
def test_any_tokens_can_be_shown_as_text(tokens: list[str]) -> None:
    panel = ColouredText(tokens, numbers([0.5] * len(tokens)), quantity="gate")
    shown = Figure("t", [panel]).text(80)
    assert len(shown.splitlines()) == len(tokens) + 3
