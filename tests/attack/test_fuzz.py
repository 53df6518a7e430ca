"""The fuzzer in short: inputs that users and others may give are read, or refused by an error of one sentence."""

import json
import os
import sys

import pytest
from processes import ROOT, run_forked

sys.path.insert(0, str(ROOT))  # benchmarks are beside the package

from benchmarks.attack import fuzz
from benchmarks.attack.inputs import Kind

COUNT = 4000  # inputs; `python -m benchmarks.attack.fuzz` takes as many as one likes
QUICK = ["text", "tables", "parquet", "labelled", "parallel", "tagged", "recipe", "race settings", "override"]
QUICK += ["tokenizer", "imported tokenizer", "word vectors", "arpa", "hugging face"]


@pytest.mark.slow
def test_changed_inputs_are_read_or_refused(tmp_path):
    """Both happen for each kind of input. In a process of its own, which forks."""
    words = ["--count", str(COUNT), "--seconds", "1e9", "--to", str(tmp_path), "--kinds", *QUICK]
    done = run_forked("-m", "benchmarks.attack.fuzz", *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (campaign,) = json.loads((tmp_path / "attack-fuzz.json").read_text())["campaigns"]
    assert sum(campaign["counts"].values()) == COUNT
    assert campaign["counts"].keys() == {f"{kind}: {outcome}" for kind in QUICK for outcome in ("read", "refused")}


@pytest.mark.slow
def test_the_fuzzer_notices_foreign_exceptions_hangs_memory_and_crashes(tmp_path, monkeypatch):
    def hang():
        while True:
            pass

    acts = {"hang": hang, "abort": os.abort, "memory": lambda: bytearray(2 * fuzz.MEMORY), "foreign": {}.popitem}
    monkeypatch.setattr(fuzz, "SECONDS", 0.1)
    kind = Kind(dict.fromkeys(acts, b"x"), lambda path, dice: acts[path.name]())
    number, found = 0, set()
    while number < 25:
        number, read, refused, violations = fuzz.batch(kind, "test", number, 25 - number, tmp_path)
        assert read + refused == 0
        found |= {key.partition(" test_fuzz.py")[0] for _, key, _ in violations}
    assert found == {"hang", "crash with SIGABRT", "MemoryError", "KeyError"}
