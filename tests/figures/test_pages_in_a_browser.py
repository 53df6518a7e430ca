"""Pages of figures in a browser: of `elman inspect` and of labs."""

import numpy as np
import pytest
from browsing import DESKTOP, PHONE, Visit, browser

from elman.figures.figure import Figure
from elman.figures.panels import Bars, ColouredText, HeatMap, Lines, Scatter, UnitTimelines
from elman.figures.panels.scatter import Point
from elman.inspection.labs.lab import Lab, Result

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
TEXT = "the wolf near the men behind the old house was not so very happy"
WORDS = TEXT.split()
COMMAND = f"elman inspect trace runs/a-long-name --text '{TEXT}' --sites 'layers.*.gru.gate.*'"
dice = np.random.default_rng(0)


def figure() -> Figure:
    """One panel of each kind."""
    count, places = len(WORDS), np.arange(1, 9)
    panels = [
        HeatMap({"gate": dice.random((4, count))}, list("0123"), WORDS, row_axis="unit", quantity="gate"),
        Lines({"gru": (places, dice.random(8)), "rnn": (places, dice.random(8))}, "distance", "norm"),
        Bars(WORDS, {"one": dice.random(count), "two": -dice.random(count)}, "influence"),
        ColouredText(WORDS, dice.random(count), WORDS, quantity="surprisal"),
        Scatter(
            {"gru": Point(1, 3, 2.5, 3.5), "rnn": Point(50, 2, 2, 2)}, "seconds", "loss", "x", front=["gru", "rnn"]
        ),
        UnitTimelines(["unit 0"], WORDS, dice.random((1, count)) - 0.5, dice.random((1, count)), quantity="state"),
    ]
    return Figure("Gates & <states>", panels, ["What it says, in a sentence."], "run a, step 3", command=COMMAND)


def lab() -> str:
    """The page of a lab of which one number fell outside."""
    ranges = {"a share of something": (0, 1), "another": (0, 1)}
    experiment = Lab(
        "gates", "Gates", "Does it open?", "It does.", ranges,
        lambda seed, progress: Result([figure()], {"a share of something": 0.5, "another": 2.0}),
        doubt="But not always.",
    )  # fmt: skip
    return experiment.run().html("elman lab run gates")


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module", params=["inspect", "lab"])
def path(request, tmp_path_factory, chromium):
    page = tmp_path_factory.mktemp("pages") / "page.html"
    page.write_text(lab() if request.param == "lab" else figure().html())
    return page


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_a_page_of_pictures_opens_offline_and_axe_finds_nothing_wrong(chromium, path, width):
    """Catches a picture that is fetched, and with commands that scroll where no key reaches them."""
    with Visit(chromium, path, width) as visit:
        assert visit.asked == []
        assert visit.complaints == []
        assert visit.violations() == []
        assert visit.across() == 0
        assert visit.overlapping() == []


def test_its_pictures_are_painted(chromium, path):
    """Catches a picture without bytes."""
    with Visit(chromium, path) as visit:
        painted = visit.painted("figure svg")
        assert painted
        assert min(painted) > 1000
