"""Speed is measured beside peers, in turns, and only while everything is right."""

import json

import pytest
import torch

from elman.bench import SUITES, agreement
from elman.bench.harness import compare, interleaved, write
from elman.ops import native


def test_rounds_take_turns_and_ratios_are_those_of_rounds():
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


@pytest.mark.parametrize("check", [agreement.recurrence, agreement.scans, agreement.stepping, agreement.generation])
def test_everything_agrees_on_this_machine(check):
    assert check() == []


def test_a_wrong_form_is_found(monkeypatch):
    runner = native.Runner.step
    monkeypatch.setattr("elman.bench.agreement.Runner.step", lambda self, word: runner(self, word) * 1.1)
    assert "lstm: machine code differs from torch" in agreement.stepping()


def test_another_text_is_found(monkeypatch):
    monkeypatch.setattr("elman.generation.captured.keep", lambda old, new: None)
    assert "lstm: captured steps write another text than torch" in agreement.generation()


def test_generation_is_measured_here_too():
    for figures in SUITES["generation"].measure(1).values():
        assert set(figures["variants"]) == {"torch", "captured"}
        assert all(row["tokens_per_second"] > 0 for row in figures["variants"].values())
