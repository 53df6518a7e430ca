"""Short forms of the attacks in benchmarks/attack, which do as many as one likes."""

import json

import pytest
from processes import ROOT, run_forked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "kinds"),
    [
        # Seen to fail with the dice, the carried state, the judge's memory or the position in the log not restored, and
        # with the average restored in another order.
        ("kills", 16, ["stream", "averaging", "predict"]),
        # Seen to fail with files written in place, and with temporary files that nobody removes.
        ("operations", 12, ["ngram", "classify"]),
        # Seen to fail with the remains of failed writes left where they are.
        ("disk_full", 4, ["full", "deleted"]),
        # Seen to fail where the one thread that a race asks for stayed for the training after it.
        ("orders", 2, ["ngram"]),
    ],
)
def test_no_violation(name, count, kinds, tmp_path):
    """In a process of its own, which forks."""
    words = ["--count", str(count), "--kinds", *kinds, "--to", str(tmp_path)]
    done = run_forked("-m", f"benchmarks.attack.{name}", *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (campaign,) = json.loads((tmp_path / f"attack-{name}.json").read_text())["campaigns"]
    assert campaign["violations"] == []
    assert campaign["counts"].keys() == {*kinds}
    assert sum(campaign["counts"].values()) == count
