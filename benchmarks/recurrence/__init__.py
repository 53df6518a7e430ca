"""Generated recurrence kernels on a GPU: first whether they are right, then how fast, beside torch's own and our loop.

    python -m benchmarks.recurrence [--minutes 5] [--only lstm gru]

The most telling cases come first, a few at a time: they are checked in parallel processes, which also compiles them,
then timed one after another in one process, by events of the device, in rounds that take turns: medians of 30. What is
wrong is not timed. What fails, hangs or takes its process with it is written down, and the rest goes on.
"""

from typing import Any

from benchmarks.recurrence.cases import CASES
from benchmarks.recurrence.running import run
from benchmarks.recurrence.timing import REPEATS

MINUTES = 5.0


def measure(rounds: int) -> dict[str, Any]:
    """All cases; `rounds` is what they have at least, in the time there is."""
    assert rounds <= REPEATS
    return run(CASES, MINUTES)
