"""Learning rates: as many trials for all, and by one rule a step beyond for those whose best is at an edge."""

import json

import pytest

from elman.comparison import Race, RaceRun
from elman.comparison.report import _rates
from elman.runs.file_manifest import FileManifest


class Pretended:
    """Trains nothing: the loss is a function of the learning rate."""

    def __init__(self, loss):
        self.loss, self.trained = loss, []

    def train(self, folder):
        self.trained.append(f"{folder.parent.name} {folder.name}")
        rate = float(folder.name.removeprefix("rate-")) if folder.name.startswith("rate-") else 0.0
        loss = self.loss(folder.parent.name, rate)
        (folder / "results.json").write_text(json.dumps({"valid": {"loss": loss}, "tokens_per_second": 1.0}))
        return {"code": 0}

    def interrupt(self, sign=None):
        pass

    def close(self):
        pass


def ran(settings, folder, loss, **options):
    place = Pretended(loss)
    running = RaceRun(Race.make(settings), folder, places=[place], **options)
    list(running.events())
    return running, place.trained


@pytest.fixture
def three(small):
    small["recipe"] |= {"training": {"learning_rate": 0.004}, "model": {"hidden_size": 8}}
    return small | {"entrants": ["ngram", "rnn", "gru"], "trials": 3, "seeds": 1, "parameters": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best", "extra", "tried", "chosen"),
    [
        (0.004, 2, [0.00133, 0.004, 0.012], 0.004),
        (0.036, 1, [0.00133, 0.004, 0.012, 0.036], 0.036),
        (0.0004, 2, [0.000148, 0.000443, 0.00133, 0.004, 0.012], 0.000443),
        (9.0, 0, [0.00133, 0.004, 0.012], 0.012),
    ],
)
def test_a_best_rate_at_an_edge_is_followed_so_far_and_no_further(three, tmp_path, best, extra, tried, chosen):
    """Catches a step inwards."""
    running, _ = ran(three | {"extra_trials": extra}, tmp_path / "r", lambda name, rate: abs(rate - best))
    assert sorted(running.tried["rnn"]) == tried
    assert running.rates == {"rnn": chosen, "gru": chosen}


def test_each_follows_its_own_best_and_the_report_tells_whose_still_is_at_an_edge(three, tmp_path):
    goals = {"rnn": 0.004, "gru": 9.0}
    running, _ = ran(three, tmp_path / "r", lambda name, rate: abs(rate - goals.get(name, 0)))
    assert (len(running.tried["rnn"]), len(running.tried["gru"])) == (3, 4)
    told = " ".join(_rates(running))
    assert "at most 1 more" in told
    assert "Extended: gru 0.036." in told
    assert "at the edge of the search for gru:" in told


def test_a_rate_that_came_to_nothing_is_an_edge_too(three, tmp_path):
    """The best is then inside: what is beyond it has no loss. Catches edges of those that came to an end."""
    running, _ = ran(three, tmp_path / "r", lambda name, rate: None if rate > 0.01 else -rate)
    assert sorted(running.tried["rnn"]) == [0.00133, 0.004, 0.012]
    assert running.rates["rnn"] == 0.004


def test_a_race_that_goes_on_keeps_the_rates_it_began_with(three, tmp_path):
    """Also one that began before there were further trials. Catches a step beyond whenever the best is at an
    edge: more seeds would have run with another rate."""
    falling = lambda name, rate: -rate  # noqa: E731
    before, _ = ran(three | {"extra_trials": 0}, tmp_path / "r", falling)
    assert before.rates["rnn"] == 0.012
    settings = tmp_path / "r" / "race.yaml"
    settings.write_text(settings.read_text().replace("extra_trials: 0", "extra_trials: 1"))
    FileManifest(tmp_path / "r").accept()
    after, trained = ran(three | {"seeds": 2}, tmp_path / "r", falling, resume=True)
    assert trained == ["rnn seed-2", "gru seed-2"]
    assert after.rates == before.rates
