"""Killed with SIGKILL at random moments, a run resumes to the same bits: checked for each kind of run."""

import pytest
from processes import ROOT, run_forked

KILLS = 24  # in all; `python -m benchmarks.kills` does as many as one likes


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits():
    """In a process of its own, which forks. Catches the dice, the carried state, the judge's memory or the
    place in the log not restored, and with the average restored in another order."""
    done = run_forked("-m", "benchmarks.kills", "--kills", str(KILLS), cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert f"{KILLS} kills, 0 failures" in done.stdout
