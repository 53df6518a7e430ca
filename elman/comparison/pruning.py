"""Pruning: trials that are hopeless, judged by earlier trials at equal updates, end early.

What a trial must reach is known before it starts, as milestones of its recipe: the trial itself stops where it misses
one. So it stops at the same step wherever, and however often interrupted, it runs.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

STARTUP = 5  # trials that ran to their end, before any is pruned
WARMUP = 0.1  # share of a training in which none is pruned by the median
REDUCTION = 3  # successive halving: the best third of the trials passes a rung
RUNGS = (1 / 9, 1 / 3)  # shares of a training

Curve = Sequence[tuple[int, float]]  # steps, and the score of each validation; lower is better
Milestones = list[tuple[int, float]]


class Course(NamedTuple):
    """How a trial went."""

    curve: Curve
    complete: bool  # not pruned


def milestones(rule: str, earlier: Sequence[Course]) -> Milestones:
    """What the next trial must have reached at which step."""
    complete = [one.curve for one in earlier if one.complete and one.curve]
    if rule == "none" or len(complete) < STARTUP:
        return []
    end = max(curve[-1][0] for curve in complete)
    found = _medians(complete, end) if rule == "median" else _rungs([one.curve for one in earlier if one.curve], end)
    return [(step, loss) for step, loss in found if math.isfinite(loss)]


def _medians(complete: Sequence[Curve], end: int) -> Milestones:
    """The median stopping rule (Golovin et al., 2017): at every validation the best so far must not be above the
    median of the bests so far of all complete trials."""
    found: Milestones = []
    for step in sorted({step for curve in complete for step, _ in curve if WARMUP * end <= step < end}):
        bests = _bests(complete, step)
        if len(bests) >= STARTUP:
            found.append((step, median(bests)))
    return found


def _rungs(curves: Sequence[Curve], end: int) -> Milestones:
    """Asynchronous successive halving (Li et al., 2020): at a rung a trial must be among the best third of all that
    came so far."""
    found: Milestones = []
    for share in RUNGS:
        step = min((step for curve in curves for step, _ in curve if share * end <= step < end), default=None)
        bests = sorted(_bests(curves, step)) if step is not None else []
        if step is not None and len(bests) >= STARTUP:
            found.append((step, bests[max(1, (len(bests) + 1) // REDUCTION) - 1]))
    return found


def _bests(curves: Sequence[Curve], step: int) -> list[float]:
    """The best until a step, of each that has got so far."""
    reached = (curve for curve in curves if curve[-1][0] >= step)
    return [min(values) for curve in reached if (values := [value for at, value in curve if at <= step])]
