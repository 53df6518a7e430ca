"""Figures: every format has the same values, labels and command, and HTML is self-contained."""

import csv
import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn_styles import drawn_styles
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from elman.errors import ConfigError
from elman.figures.colours import SCALES, SERIES, Style, assign_styles, quantity_of
from elman.figures.figure import FORMATS, Figure, share_palette
from elman.figures.panels import Bars, ColouredText, HeatMap, Lines, Parallel, Scatter, UnitTimelines, as_array
from elman.figures.panels.scatter import Point

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
    "bands": Lines(
        {"a": (np.arange(4), np.arange(4.0)), "$b$": (np.arange(4), np.ones(4))},
        ticks=TOKENS[:4],
        bands={"a": (np.arange(4) - 0.5, np.arange(4) + 0.5)},
        raw={"a": (np.arange(4), dice.random(4))},
        references={"chance": 0.5},
        x_span=(0, 2),
        x_span_label="training",
        size=(4.8, 3.7),
    ),
    "scatter": Scatter(
        {"gru": Point(1, 3, 2.5, 3.5), "$lstm$": Point(50, 2, 2, 2)}, "seconds", "loss", "xy", front=["gru", "$lstm$"]
    ),
    "parallel": Parallel(
        ["one", "two"],
        ["rate", "$x_1$", "loss"],
        dice.random((2, 3)),
        [[(0, "1e-4"), (1, "1")], [(0.5, "中文")], [(0, "\n")]],
    ),
    "bars": Bars(TOKENS, {"one": dice.random(8), "two": -dice.random(8)}, "influence"),
    "lying bars": Bars([f"a rather long name, {n}" for n in range(3)], {"one": dice.random(3)}, "share", (0, 1)),
    "timelines": UnitTimelines(["unit 0"], TOKENS, dice.random((1, 8)) - 0.5, dice.random((1, 8)), quantity="state"),
    "text": ColouredText(TOKENS, np.array([1.0, 2, 3, np.nan, 5, 6, 7, 8]), list("abcdefgh"), quantity="surprisal"),
}
every_panel = pytest.mark.parametrize("kind", PANELS)


def figure(*kinds: str) -> Figure:
    panels = [PANELS[kind] for kind in kinds]
    return Figure("A <title> & more", panels, ["What it says."], "run, step 3", command="elman inspect 'x'")


@pytest.mark.slow
@every_panel
def test_every_panel_is_saved_in_every_format(tmp_path: Path, kind: str) -> None:
    """Warnings are errors here: matplotlib warns of missing glyphs and fails on unfinished math text."""
    shown = figure(kind)
    for suffix in FORMATS:
        path = shown.save(tmp_path / "new" / f"figure.{suffix}")
        assert path.stat().st_size > 50
        assert b"elman inspect" in path.read_bytes(), "every file carries its command"
    assert ElementTree.parse(tmp_path / "new" / "figure.svg").getroot().tag.endswith("svg")
    with Image.open(tmp_path / "new" / "figure.png") as image:
        image.verify()
        assert image.info["Description"] == "run, step 3 elman inspect 'x'"
    assert shown.image("svg") == shown.image("svg"), "rendering is deterministic"


@every_panel
def test_tables_have_the_values_of_the_panel(kind: str) -> None:
    """Catches rows and columns exchanged in the table."""
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


@pytest.mark.slow
def test_a_page_is_self_contained_and_describes_its_figure() -> None:
    """Catches a title that was not escaped."""
    page = figure(*PANELS).html()
    assert not re.search(r"(src|href)=[\"'](?!data:|#)", page)
    assert not re.search(r"https?://(?!www\.w3\.org/)", page)  # the names of XML are no requests
    assert "<title>A &lt;title&gt; &amp; more</title>" in page
    assert "<b>" not in page
    assert 'lang="en"' in page
    svg = re.search(r'<svg role="img" aria-label="([^"]*)" aria-describedby="([^"]*)"', page)
    assert svg
    assert svg[1].startswith("gates, ")
    assert f'<figcaption id="{svg[2]}"><p>run, step 3</p><p>What it says.</p>' in page
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert "elman inspect &#x27;x&#x27;" in page
    assert page.count("<details>") == len(PANELS)
    assert "<figure" in figure("bars")._repr_html_()


@every_panel
@pytest.mark.parametrize("width", [40, 80, 120])
def test_terminal_text_fits_its_width(kind: str, width: int) -> None:
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


def test_scales_are_fixed_for_each_quantity_so_that_figures_compare() -> None:
    """Catches limits taken from the values."""
    for quantity, ends in {"gate": (0, 1), "state": (-1, 1), "attention": (0, 1)}.items():
        assert SCALES[quantity].limits([dice.random((3, 3)) * 7]) == ends
    assert SCALES["value"].limits([np.array([-2.0, 1.0])]) == (-2, 2)
    assert SCALES["value"].limits([np.array([np.inf, np.nan])]) == (-1, 1)
    assert quantity_of("layers.0.lstm.gate.forget") == "gate"
    assert quantity_of("decoder.cross-attention.weights") == "attention"
    assert quantity_of("layers.1.mamba.decay") == "gate"
    assert quantity_of("layers.0.lstm.memory") == "state"
    assert quantity_of("output.logits") == "value"


def test_colours_differ_for_colour_blind_readers() -> None:
    """Deuteranopia by Viénot's matrix: neighbouring series, and both ends of each scale, stay distinct.
    Catches red beside green."""
    turn = np.array([[0.29, 0.71, 0.0], [0.29, 0.71, 0.0], [-0.02, 0.02, 1.0]])

    def seen(colour: str) -> np.ndarray:
        parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        return turn @ parts

    for one, other in pairwise(SERIES):
        assert np.linalg.norm(seen(one) - seen(other)) > 0.15, (one, other)
    for scale in SCALES.values():
        low, middle, high = (turn @ np.array(scale.colours()(share)[:3]) for share in (0.0, 0.5, 1.0))
        assert np.linalg.norm(low - high) > 0.3, scale
        assert min(np.linalg.norm(low - middle), np.linalg.norm(high - middle)) > 0.2, scale


def test_values_beyond_the_scale_have_its_last_colour() -> None:
    """Seen to fail: the most surprising tokens had the colour of the least surprising ones."""
    drawn = Figure("t", [ColouredText(["x"], np.array([50.0]), quantity="surprisal")]).image("svg").decode()
    last = "#" + "".join(f"{round(255 * part):02x}" for part in SCALES["surprisal"].colours()(1.0)[:3])
    assert f"fill: {last}" in drawn


def test_an_unknown_format_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.svg, \.png, \.html"):
        figure("bars").save(tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@given(st.lists(st.text(max_size=12), min_size=1, max_size=6))
def test_any_tokens_can_be_shown_as_text(tokens: list[str]) -> None:
    panel = ColouredText(tokens, as_array([0.5] * len(tokens)), quantity="gate")
    shown = Figure("t", [panel]).text(80)
    assert len(shown.splitlines()) == len(tokens) + 3


labels = st.lists(st.sampled_from("abcdefghijklmnop"), min_size=1, max_size=10, unique=True)


@given(st.lists(labels, min_size=1, max_size=4))
def test_labels_that_share_a_panel_have_different_styles(panels: list[list[str]]) -> None:
    """Catches colours by position in the panel, and with neighbours of the first panel only."""
    styles = assign_styles(panels)
    for panel in panels:
        assert len({styles[label] for label in panel}) == len(panel)
    assert styles[panels[0][0]] == Style.number(0)
    assert len({Style.number(index)[:3] for index in range(32)}) == 32


def test_a_label_keeps_its_style_in_all_panels_of_a_page() -> None:
    """Catches a palette of each panel, of each figure, and of bars apart from lines."""
    xs, other = np.arange(3), Point(1, 1, 1, 1)
    first = Figure("", [Lines({"positive": (xs, xs), "negative": (xs, -xs)}), Bars("ab", {"negative": np.ones(2)})])
    second = Figure("", [Scatter({"negative": other, "positive": other}), Lines({"new": (xs, xs)})])
    drawn = drawn_styles(share_palette([first, second]))
    assert {*drawn} == {"positive", "negative", "new"}
    assert all(len(styles) == 1 for styles in drawn.values()), drawn
    assert drawn["positive"] != drawn["negative"]


def test_whole_numbers_along_x_have_whole_ticks():
    """Catches a trial 1.25; other numbers keep their fractions."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    for xs, whole in ((np.arange(1.0, 4), True), (np.array([0.1, 0.9]), False)):
        part = figure.subfigures()
        Lines({"best": (xs, xs)}, "trial").draw(part, assign_styles([["best"]]))
        ticks = part.axes[0].get_xticks()
        assert all(float(tick).is_integer() for tick in ticks) == whole
