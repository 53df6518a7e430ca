"""Stepping has constant memory."""

import json

import pytest
from processes import ROOT, run_forked

STEPS = 20_000  # `python -m benchmarks.streaming` does a million


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "mamba", "attention", "ngram", "native lstm"])
def test_stepping_has_constant_memory(name: str) -> None:
    """In a process of its own, from step 10,000 to 20,000. Catches layers that kept their states or keys, and
    with gradients left on."""
    command = ["-m", "benchmarks.streaming", "--here", name, "--steps", str(STEPS)]
    found = json.loads(run_forked(*command, cwd=ROOT, check=True).stdout)
    assert found["megabytes"].keys() == {"1000", "10000", str(STEPS)}
    assert found["growth"] < 1
