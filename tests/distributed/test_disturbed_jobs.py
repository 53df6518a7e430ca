"""Jobs of torchrun that are disturbed, in short: `python -m benchmarks.attack.ranks` knows more faults."""

import json
import sys

import pytest
from processes import ROOT, run_forked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks"),
    pytest.mark.xdist_group("torchrun"),
]
FAULTS = ["kill a rank", "SIGTERM to the agent"]


def test_a_disturbed_job_ends_with_a_message_and_resumes_to_the_same_weights(tmp_path):
    """In a process of its own, which forks."""
    words = ["--count", "2", "--seconds", "1e9", "--seed", "1", "--to", str(tmp_path), "--kinds", *FAULTS]
    done = run_forked("-m", "benchmarks.attack.ranks", *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (campaign,) = json.loads((tmp_path / "attack-ranks.json").read_text())["campaigns"]
    assert campaign["counts"] == dict.fromkeys(FAULTS, 1)
