"""report.html in a browser: on desktop, phone and paper, with a screen reader, and offline."""

import pytest
from browsing import DESKTOP, PAPER, PHONE, Visit, browser
from drawn_styles import drawn_styles
from test_sweeps import LONG, Calculator, run

from elman.comparison import gather
from elman.comparison.race_figures import race_figures
from elman.comparison.report import write_report
from elman.comparison.sweep_report import write_sweep_report
from elman.comparison.sweep_results import gather_sweep

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def report(raced):
    """Of a race with a failed entrant and a long command."""
    return write_report(gather(raced), raced, ["compare", "--models", "ngram,rnn", "--run", "a/folder" * 8])


def test_it_opens_offline_without_requests(chromium, report):
    """Catches a picture that is fetched, and with a script that complains."""
    with Visit(chromium, report) as visit:
        assert visit.page.locator("h1").inner_text()
        assert visit.asked == []
        assert visit.complaints == []


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_axe_finds_nothing_wrong(chromium, report, width):
    """Catches grey letters, and with a drawing without a name."""
    with Visit(chromium, report, width) as visit:
        assert visit.violations() == []


@pytest.mark.parametrize("width", [PHONE, 600, DESKTOP])
def test_nothing_is_cut_and_nothing_scrolls_sideways(chromium, report, width):
    """Catches tables that stay tables on a telephone, and with commands that do not wrap."""
    with Visit(chromium, report, width) as visit:
        assert visit.across() == 0
        assert visit.cut() == []


@pytest.mark.parametrize(("width", "media"), [(PHONE, "screen"), (DESKTOP, "screen"), (PAPER, "print")])
def test_no_texts_overlap(chromium, report, width, media):
    """Catches labels of an axis that are too long."""
    with Visit(chromium, report, width, media) as visit:
        assert visit.overlapping() == []
        assert visit.faint() == []


def test_every_figure_is_painted(chromium, report):
    """Catches the paths of the drawings removed."""
    with Visit(chromium, report) as visit:
        painted = visit.painted("figure svg")
        assert len(painted) >= 4
        assert min(painted) > 100


def test_print_has_all_content_of_the_screen(chromium, report, tmp_path):
    """Catches a section that is hidden in print."""
    with Visit(chromium, report) as screen, Visit(chromium, report, PAPER, "print") as paper:
        words = [visit.page.locator("main").inner_text().split() for visit in (screen, paper)]
        assert words[0] == words[1]
        assert paper.across() == 0
        assert paper.cut() == []
        assert len(paper.page.pdf(path=tmp_path / "report.pdf")) > 10_000


def test_the_answer_comes_first_and_the_commands_last(chromium, report):
    with Visit(chromium, report) as visit:
        heads = visit.page.locator("h1, h2").all_inner_texts()
        first = visit.page.locator("main").inner_text().splitlines()[0]
    assert first == heads[0]
    assert heads[1:4] == ["Quality against training time", "Learning curves", "Agreement accuracy by distance"]
    assert heads.index("Samples side by side") < heads.index("Where predictions differ") < heads.index("Reproduce")
    assert heads[-1] == "Reproduce"
    assert report.stat().st_size < 1_000_000


def test_an_entrant_has_one_style_in_all_figures(raced):
    """Catches a palette of each figure."""
    found = gather(raced)
    styles = drawn_styles(race_figures(found, raced.jobs).values())
    assert {"ngram", "rnn"} <= {*styles}
    assert all(len(one) == 1 for one in styles.values()), styles


@pytest.fixture(scope="module")
def sweep_report(tmp_path_factory):
    """Of a sweep with pruned and failed trials."""
    settings = {**LONG["settings"], "model.pattern": "[rnn],[gru]", "training.optimizer": "adam,adamw"}
    folder = tmp_path_factory.mktemp("sweep") / "sweep"
    running = run(folder, **{**LONG, "settings": settings}, places=[Calculator(limit=0.05)])
    assert running.failures
    return write_sweep_report(gather_sweep(running), running, ["sweep", "recipe.yaml", "--run", "a/folder" * 8])


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_report_of_a_sweep_can_be_read_everywhere(chromium, sweep_report, width):
    """Catches setting names that overlap along the axes."""
    with Visit(chromium, sweep_report, width) as visit:
        assert visit.asked == visit.complaints == []
        assert visit.violations() == []
        assert visit.across() == 0
        assert visit.cut() == []
        assert visit.overlapping() == []
        assert visit.faint() == []
        assert min(visit.painted("figure svg")) > 100
