"""Generated recurrence kernels on a GPU: correctness first, then speed against torch's kernels and our reference loop.

    python -m benchmarks.recurrence [--minutes 5] [--only lstm gru]

Cases are ordered by importance and run a few at a time: checked in parallel processes (which compiles their kernels),
then timed one after another in one process with CUDA events, medians of 30 interleaved rounds. A kernel with wrong
results is not timed. A case that fails, hangs or kills its process is recorded, and the rest continues.
"""

from typing import Any

from benchmarks.recurrence.cases import CASES
from benchmarks.recurrence.running import run
from benchmarks.recurrence.timing import REPEATS

MINUTES = 5.0


def measure(rounds: int) -> dict[str, Any]:
    """All cases within MINUTES; every timing has REPEATS rounds, which must be at least `rounds`."""
    assert rounds <= REPEATS
    return run(CASES, MINUTES)
