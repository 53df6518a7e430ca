"""The generation suite: CUDA-graph steps must give torch's text; on a CPU it runs in a small size."""

import pytest

from benchmarks import agreement
from benchmarks.suites import SUITES


def test_cuda_graph_generation_agrees_with_torch():
    assert agreement.generation() == []


def test_a_different_text_is_found(monkeypatch):
    monkeypatch.setattr("elman.generation.cuda_graph.keep", lambda old, new: None)
    assert "lstm: generation with a CUDA graph gives another text than torch" in agreement.generation()


@pytest.mark.slow
def test_generation_suite_runs_on_this_machine():
    for figures in SUITES["generation"].measure(1).values():
        assert set(figures["variants"]) == {"torch", "captured"}
        assert all(row["tokens_per_second"] > 0 for row in figures["variants"].values())
