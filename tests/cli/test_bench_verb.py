"""elman bench: what it measures, when it is silent, where figures go."""

import json

from elman.bench import SUITES, suites


def test_no_speed_is_reported_while_something_is_wrong(elman, monkeypatch, tmp_path):
    wrong = SUITES["training"]._replace(broken=lambda: ["lstm differs"])
    monkeypatch.setitem(suites.SUITES, "training", wrong)
    ended = elman("bench", "training", "--to", str(tmp_path))
    assert ended.code == 1
    assert "lstm differs" in ended.err
    assert not list(tmp_path.iterdir())


def test_suites_are_listed_and_unknown_ones_named(elman):
    assert all(name in elman("bench", "--list").out for name in SUITES)
    ended = elman("bench", "stepin")
    assert ended.code == 2
    assert "stepping" in ended.err


def test_figures_are_written(elman, monkeypatch, tmp_path):
    class Figures:
        @staticmethod
        def measure(rounds):
            return {"rounds": rounds}

    monkeypatch.setattr(suites, "import_module", lambda name: Figures)
    monkeypatch.setitem(suites.SUITES, "training", SUITES["training"]._replace(broken=list))
    assert elman("bench", "training", "--rounds", "2", "--to", str(tmp_path)).code == 0
    [path] = tmp_path.iterdir()
    assert json.loads(path.read_text())["results"] == {"rounds": 2}
