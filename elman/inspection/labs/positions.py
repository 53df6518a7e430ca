"""Lab: the permutation test of order sensitivity."""

import math

from elman.figures.figure import Figure
from elman.figures.panels import Bars
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.permutation import permutation_table

SHOWN = ("attention", "two-way-attention", "attention, rotary", "attention, alibi", "gru", "lstm", "s4", "window")
SMALLEST = -17.0


def experiment(seed: int, progress: Progress) -> Result:
    found = {(one.name, one.layers): one for one in permutation_table()}
    names = [name for name in SHOWN if (name, 1) in found]
    depths = {"1 layer": 1, "2 layers": 2}
    powers = {
        depth: [math.log10(max(10**SMALLEST, found[name, count].shuffled)) for name in names]
        for depth, count in depths.items()
    }
    title = "Relative change of the last output when all tokens before it are shuffled"
    figure = Figure("Sensitivity to order", [Bars(names, powers, "log10 of the change", (SMALLEST, 1), title=title)])
    measured = {f"{name}, {depth}": power for depth in depths for name, power in zip(names, powers[depth], strict=True)}
    return Result([figure], measured)


LAB = Lab(
    "permutation",
    "Positions",
    "Without positional encodings, does attention depend on the order of its inputs?",
    "One causal layer does not: shuffling all tokens but the last changes its last output by rounding only. Two "
    "causal layers do: under the mask, each output of the first depends on how many tokens precede it. "
    "Bidirectional attention has no mask and is permutation invariant at any depth. Recurrent layers always depend "
    "on order.",
    {
        "attention, 1 layer": (-17, -14),
        "attention, 2 layers": (-3, 0.5),
        "two-way-attention, 2 layers": (-17, -14),
        "gru, 1 layer": (-2, 0.5),
    },
    experiment,
)
