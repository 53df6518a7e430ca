"""Short forms of the attacks in `benchmarks/attack`, which have counts of thousands; each in a process that forks."""

import json
import re

import pytest
from processes import ROOT, run_forked

CASES = 40


def attack(name, folder, *words):
    done = run_forked("-m", f"benchmarks.attack.{name}", "--to", str(folder), *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (campaign,) = json.loads((folder / f"attack-{name}.json").read_text())["campaigns"]
    assert campaign["violations"] == []
    return campaign


@pytest.mark.slow
def test_damaged_files_are_refused_or_change_nothing(tmp_path):
    """Catches encoded data, the log or a manifest that nothing hashes."""
    kinds = ("language model", "translate")
    found = attack("corruption", tmp_path, "--count", str(CASES), "--kinds", *kinds)
    assert found["cases"] == CASES
    assert found["counts"]["refused"]
    assert found["counts"]["identical"]
    again = attack("corruption", tmp_path, "--count", str(CASES + 1), "--kinds", "n-grams")
    assert sum(again["counts"].values()) == again["cases"] == CASES + 1, "goes on where it stopped"


@pytest.mark.slow
def test_hostile_folders_do_no_harm(tmp_path):
    """Catches a link that is followed, a path of a manifest that is read, and a limit that is not checked."""
    found = attack("hostile", tmp_path, "--every", "15", "--bases", "n-grams", "hf gpt2")
    assert found["cases"] > CASES / 3
    assert found["counts"]["refused"]


def test_every_promise_names_tests_that_are_there():
    named = re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).is_file()] == []
