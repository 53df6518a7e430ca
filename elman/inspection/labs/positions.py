"""Lab: the permutation test of order sensitivity."""

import math

import numpy as np

from elman.figures.figure import Figure
from elman.figures.panels import Bars
from elman.inspection.labs.lab import Expected, Lab, Progress, Result
from elman.inspection.permutation import permutation_table

SHOWN = ("attention", "two-way-attention", "attention, rotary", "attention, alibi", "gru", "lstm", "s4", "window")
SMALLEST = -17.0


def experiment(seed: int, progress: Progress) -> Result:
    found = {(one.name, one.layers): one for one in permutation_table()}
    names = [name for name in SHOWN if (name, 1) in found]
    powers = {
        f"{count} {'layer' if count == 1 else 'layers'}": np.array(
            [_power(found[name, count].shuffled) for name in names]
        )
        for count in (1, 2)
    }
    title = "Relative change of the last output when all tokens before it are shuffled"
    figure = Figure("Sensitivity to order", [Bars(names, powers, "log10 of the change", (SMALLEST, 1), title=title)])
    measured = {
        "attention, 1 layer": _power(found["attention", 1].shuffled),
        "attention, 2 layers": _power(found["attention", 2].shuffled),
        "two-way-attention, 2 layers": _power(found["two-way-attention", 2].shuffled),
        "gru, 1 layer": _power(found["gru", 1].shuffled),
    }
    return Result([figure], measured)


def _power(change: float) -> float:
    return max(SMALLEST, math.log10(change)) if change > 0 else SMALLEST


LAB = Lab(
    "permutation",
    "Positions",
    "Without positional encodings, does attention depend on the order of its inputs?",
    "One causal layer does not: shuffling all tokens but the last changes its last output by rounding only. Two "
    "causal layers do: under the mask, each output of the first depends on how many tokens precede it. "
    "Bidirectional attention has no mask and is permutation invariant at any depth. Recurrent layers always depend "
    "on order.",
    {
        "attention, 1 layer": Expected(-17, -14),
        "attention, 2 layers": Expected(-3, 0.5),
        "two-way-attention, 2 layers": Expected(-17, -14),
        "gru, 1 layer": Expected(-2, 0.5),
    },
    experiment,
)
