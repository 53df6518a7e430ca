"""Generation is measured only while captured steps write torch's texts, and on a CPU too, where it is small."""

from benchmarks import agreement
from benchmarks.suites import SUITES


def test_captured_steps_agree_on_this_machine():
    assert agreement.generation() == []


def test_another_text_is_found(monkeypatch):
    monkeypatch.setattr("elman.generation.cuda_graph.keep", lambda old, new: None)
    assert "lstm: generation with a CUDA graph gives another text than torch" in agreement.generation()


def test_generation_is_measured_here_too():
    for figures in SUITES["generation"].measure(1).values():
        assert set(figures["variants"]) == {"torch", "captured"}
        assert all(row["tokens_per_second"] > 0 for row in figures["variants"].values())
