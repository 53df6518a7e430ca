"""report.html as people see it: on a desk, on a telephone, on paper, with a screen reader, and without a network."""

import pytest
from browsing import DESKTOP, PAPER, PHONE, Visit, browser

from elman.comparison import gather
from elman.comparison.report import write_report

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def report(raced):
    """Of a race of which one failed, made by a long command."""
    return write_report(gather(raced), raced, ["compare", "--models", "ngram,rnn", "--run", "a/folder" * 8])


def test_it_opens_offline_and_asks_for_nothing(chromium, report):
    """Seen to fail with a picture that is fetched, and with a script that complains."""
    with Visit(chromium, report) as visit:
        assert visit.page.locator("h1").inner_text()
        assert visit.asked == []
        assert visit.complaints == []


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_axe_finds_nothing_wrong(chromium, report, width):
    """Seen to fail with grey letters, and with a drawing without a name."""
    with Visit(chromium, report, width) as visit:
        assert visit.violations() == []


@pytest.mark.parametrize("width", [PHONE, 600, DESKTOP])
def test_nothing_is_cut_and_nothing_scrolls_sideways(chromium, report, width):
    """Seen to fail with tables that stay tables on a telephone, and with commands that do not wrap."""
    with Visit(chromium, report, width) as visit:
        assert visit.across() == 0
        assert visit.cut() == []


@pytest.mark.parametrize(("width", "media"), [(PHONE, "screen"), (DESKTOP, "screen"), (PAPER, "print")])
def test_no_text_lies_on_another(chromium, report, width, media):
    """Seen to fail with labels of an axis that are too long."""
    with Visit(chromium, report, width, media) as visit:
        assert visit.overlapping() == []
        assert visit.faint() == []


def test_every_picture_is_painted(chromium, report):
    """Seen to fail with the paths of the drawings removed."""
    with Visit(chromium, report) as visit:
        painted = visit.painted("figure svg")
        assert len(painted) >= 4
        assert min(painted) > 100


def test_paper_shows_all_that_a_screen_does(chromium, report, tmp_path):
    """Seen to fail with a section that is hidden in print."""
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
    assert heads[1:4] == ["Quality against training time", "Learning curves", "Right forms by distance"]
    assert heads.index("Samples side by side") < heads.index("Where they part") < heads.index("Do it again")
    assert heads[-1] == "Do it again"
    assert report.stat().st_size < 1_000_000
