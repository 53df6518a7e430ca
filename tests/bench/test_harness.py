"""The timing harness, and the correctness checks that run before timing."""

import json

import pytest
import torch

from benchmarks import agreement, recipe_update
from benchmarks.reporting import write
from elman.bench.harness import compare, interleaved
from elman.compiler.cpu import step


def test_variants_are_interleaved_and_ratios_are_per_round():
    order, now = [], iter(range(100))
    variants = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    seconds = interleaved(variants, rounds=3, warmup=1, clock=lambda: float(next(now)))
    assert order == ["a", "b"] * 4
    assert seconds == {"a": [1.0] * 3, "b": [1.0] * 3}
    table = compare({"slow": [4.0, 8.0, 6.0], "fast": [2.0, 2.0, 2.0]}, against="slow")
    assert table["fast"]["faster"] == 3.0
    assert table["fast"]["low"] <= 3.0 <= table["fast"]["high"]


def test_results_carry_date_machine_and_versions(tmp_path):
    kept = json.loads(write("some", {"ratio": 2.0}, tmp_path).read_text())
    assert kept["results"] == {"ratio": 2.0}
    assert kept["machine"]["torch"] == torch.__version__
    assert kept["machine"]["cpu"]
    assert kept["date"]


@pytest.mark.parametrize("check", [agreement.recurrence, agreement.scans, agreement.stepping])
def test_fast_implementations_agree_with_their_references(check):
    assert check() == []


def test_a_wrong_compiled_step_is_found(monkeypatch):
    runner = step.Runner.step
    monkeypatch.setattr("benchmarks.agreement.Runner.step", lambda self, word: runner(self, word) * 1.1)
    assert "lstm: the compiled step differs from torch" in agreement.stepping()


def test_recipe_updates_give_the_losses_of_plain_torch():
    """Catches: word vectors that begin elsewhere."""
    found = recipe_update.measure(1, recipe_update.Shape((24, 16), 16, words=60, rows=3, time=9, updates=1))
    assert not [row for row in found.values() if "error" in row]
    assert set(found["against plain torch fp32"]) == {"elman fp32, compiled", "elman fp32, vendor", "plain torch fp32"}
