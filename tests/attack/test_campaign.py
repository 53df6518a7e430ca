"""The records of attacks in benchmarks/attack."""

import json

from benchmarks.attack.campaign import MENDED, Campaign, parser


def campaign(folder, *words):
    return Campaign(parser("trial", "", count=10, kinds=["a", "b"], seed=1).parse_args(["--to", str(folder), *words]))


def record(folder):
    return json.loads((folder / "attack-trial.json").read_text())["campaigns"]


def test_a_campaign_goes_on_where_it_stopped(tmp_path):
    first = campaign(tmp_path, "--count", "3")
    for number in first.numbers():
        first.tally("odd" if number % 2 else "even")
    first.write()
    second = campaign(tmp_path)
    assert next(second.numbers()) == 3
    second.tally("odd", "it went wrong")
    second.write()
    (entry,) = record(tmp_path)
    assert (entry["cases"], entry["counts"], entry["violations"]) == (4, {"even": 2, "odd": 2}, ["odd: it went wrong"])
    anew = campaign(tmp_path, "--anew")
    anew.tally("even")
    anew.write()
    assert record(tmp_path)[0]["counts"] == {"even": 1}


def test_a_record_is_written_where_the_campaign_was_started(tmp_path, monkeypatch):
    """Catches: that of an attack which works in a folder of its own, written there and lost."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    options = parser("trial", "", count=1).parse_args(["--to", "."])
    monkeypatch.chdir(tmp_path / "work")
    started = Campaign(options)
    started.tally("fine")
    started.write()
    assert len(record(tmp_path)) == 1


def test_mended_violations_stay_on_record_as_such(tmp_path):
    """Catches: violations that are gone from the record, and those that still are ones and count as mended."""
    first = campaign(tmp_path)
    for file in ("first", "second"):
        first.tally("silent", {"file": file, "outcome": "silent"})
    first.write()
    campaign(tmp_path, "--seed", "2").repeat(lambda one: one["file"] == "first")
    (entry,) = record(tmp_path)
    assert [one["file"] for one in entry["violations"]] == ["second"]
    assert [one["file"] for one in entry["mended"]] == ["first"]
    assert entry["counts"] == {MENDED: 1, "silent": 1}
    more = campaign(tmp_path)
    more.tally("fine")
    more.write()
    (entry,) = record(tmp_path)
    assert [one["file"] for one in entry["mended"]] == ["first"], "kept when the campaign goes on"
    assert entry["counts"] == {MENDED: 1, "silent": 1, "fine": 1}
