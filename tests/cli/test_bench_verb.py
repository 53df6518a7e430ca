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


def test_who_interrupts_is_told_what_is_left(elman, monkeypatch, tmp_path):
    """Figures of suites before are there. Planted: suites that cannot run here; none of the options."""

    class Slow:
        @staticmethod
        def measure(rounds):
            raise KeyboardInterrupt

    class Quick:
        @staticmethod
        def measure(rounds):
            return {}

    monkeypatch.setattr(suites, "import_module", lambda name: Slow if name.endswith("cells") else Quick)
    for name in SUITES:
        needs = "" if name in ("training", "epoch", "cells") else "a GPU"
        able = SUITES[name]._replace(broken=list, obstacle=lambda needs=needs: needs)
        monkeypatch.setitem(suites.SUITES, name, able)
    ended = elman("bench", "--rounds", "2", "--to", str(tmp_path))
    assert ended.code == 130
    names = [name for name in SUITES if name in ("training", "epoch", "cells")]
    left = " ".join(names[names.index("cells") :])
    assert f"nothing of cells is written; go on with: elman bench {left} --rounds 2 --to {tmp_path}" in ended.err
    assert len(list(tmp_path.iterdir())) == names.index("cells")


def test_what_cannot_end_well_is_refused_before_anything_is_measured(elman, monkeypatch, tmp_path):
    """Planted: a folder that is missing was noticed when the figures were there, and they were lost; 0 rounds ran."""
    measured = []

    class Figures:
        @staticmethod
        def measure(rounds):
            measured.append(rounds)
            return {}

    monkeypatch.setattr(suites, "import_module", lambda name: Figures)
    monkeypatch.setitem(suites.SUITES, "training", SUITES["training"]._replace(broken=list))
    for rounds in ("0", "-1"):
        ended = elman("bench", "training", "--rounds", rounds, "--to", str(tmp_path))
        assert ended.code == 2
        assert "greater than or equal to 1" in ended.err
    (tmp_path / "file").touch()
    ended = elman("bench", "training", "--to", str(tmp_path / "file" / "here"))
    assert ended.code == 1
    assert "no figures can be written to" in ended.err
    assert not measured
    assert elman("bench", "training", "--to", str(tmp_path / "new" / "here")).code == 0
    assert len(list((tmp_path / "new" / "here").iterdir())) == 1
