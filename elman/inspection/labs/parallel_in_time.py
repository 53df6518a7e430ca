"""Lab: computing all time steps in parallel, by a loop, a scan or Newton's method."""

import math
import statistics
import timeit
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.autograd.functional import jvp

from elman.cells import CELLS, Cell
from elman.figures.figure import Figure
from elman.figures.panels import Bars, Lines
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.layers import LAYERS
from elman.ops.scan import linear_scan_chunked, linear_scan_reference
from elman.recurrence import newton, recur, using

INPUTS, UNITS = 16, 32
LENGTHS = (16, 64, 256, 1024, 4096)
LONGEST = LENGTHS[-1]
GAINS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)  # spectral radius of the recurrent matrix
GAIN_STEPS = 512
ROUNDS = 3  # timed runs, of which the median is shown


def experiment(seed: int, progress: Progress, *, units: int = UNITS) -> Result:
    torch.manual_seed(seed)
    x = torch.randn(1, LONGEST, INPUTS)
    cells = {name: CELLS[name](CELLS[name].Config(hidden_size=units), INPUTS) for name in ("rnn", "lstm", "gru")}
    with torch.no_grad():
        iterations = {
            name: newton_iterations(name, [(cell, x[:, :length]) for length in LENGTHS], progress)
            for name, cell in cells.items()
        }
        scaled, short = with_gains(cells["rnn"]), x[:, :GAIN_STEPS]
        by_gain = newton_iterations("rnn, by gain", [(cell, short) for cell in scaled], progress)
        exponents = [lyapunov_exponent(cell, short) for cell in scaled]
        ways = algorithms(cells["gru"], x)
        outputs = {name: way(LONGEST) for name, way in ways.items()}
        seconds = {name: [median_seconds(way, length) for length in LENGTHS] for name, way in ways.items()}
    measured: dict[str, float] = {
        "mingru, scan: error": relative_error(outputs["mingru, scan"], outputs["mingru, loop"]),
        "gru, newton: error": relative_error(outputs["gru, newton"], outputs["gru, loop"]),
    }
    needed = iterations["gru"][-1]
    measured |= {f"{name}, {LONGEST} steps: iterations": counts[-1] for name, counts in iterations.items()}
    measured["gru: iterations at 4096 steps over those at 64"] = needed / iterations["gru"][LENGTHS.index(64)]
    for gain, exponent, count in zip(GAINS, exponents, by_gain, strict=True):
        measured |= {f"rnn, gain {gain:g}: Lyapunov exponent": exponent, f"rnn, gain {gain:g}: iterations": count}
    depths: dict[str, Sequence[float]] = {
        "gru, loop": LENGTHS,
        "mingru, scan": [scan_depth(length) for length in LENGTHS],
        "gru, newton": [depth(count, length) for count, length in zip(iterations["gru"], LENGTHS, strict=True)],
    }
    measured |= {f"{name}: sequential depth of {LONGEST} steps": values[-1] for name, values in depths.items()}
    work = {"gru, loop": [1], "mingru, scan": [2], "gru, newton": [needed + 3]}
    measured["gru, newton: operations over the loop's"] = needed + 3

    def by_length(values: Mapping[str, Sequence[float]], quantity: str, log_axes: str, title: str) -> Lines:
        lines = {name: (LENGTHS, column) for name, column in values.items()}
        return Lines(lines, "time steps", quantity, log_axes, title=title)

    order = sorted(range(len(GAINS)), key=exponents.__getitem__)
    by_contraction = Lines(
        {"rnn": ([exponents[place] for place in order], [by_gain[place] for place in order])},
        "largest Lyapunov exponent (below 0 a difference of states shrinks)",
        "iterations",
        title=f"By how contracting the cell is ({GAIN_STEPS} steps; {newton.MAX_ITERATIONS}: given up)",
    )
    title = "Sequential depth: what remains with unlimited processors"
    costs = [
        by_length(depths, "operations in sequence", "xy", title),
        Bars(["operations over the loop's"], work, "operations, loop = 1", title="Work: what one processor must do"),
        by_length(seconds, "seconds", "xy", "Measured on this machine (loops in Python; not judged)"),
    ]
    title = "Newton iterations until every step is solved, by length"
    figures = [
        Figure("How many iterations Newton needs", [by_length(iterations, "iterations", "x", title), by_contraction]),
        Figure("What parallel in time costs", costs),
    ]
    return Result(figures, measured)


def newton_iterations(name: str, problems: Sequence[tuple[Cell, Tensor]], progress: Progress) -> list[int]:
    """Iterations until the certificate holds, for each cell and its inputs."""
    found = []
    for number, (cell, x) in enumerate(problems, 1):
        certificate = newton.solve(cell, cell.drive(x), cell.initial_state(len(x)))[2]
        progress(name, number, len(problems), certificate.residual)
        found.append(certificate.iterations)
    return found


def with_gains(cell: Cell) -> list[Cell]:
    """The RNN with the same random recurrent matrix, scaled to each spectral radius."""
    matrix = torch.randn(cell.hidden_size, cell.hidden_size) / math.sqrt(cell.hidden_size)
    cells: list[Any] = [deepcopy(cell) for _ in GAINS]
    for gain, copy in zip(GAINS, cells, strict=True):
        copy.from_past.weight.copy_(gain * matrix)
    return cells


def lyapunov_exponent(cell: Cell, x: Tensor) -> float:
    """The mean logarithm per step by which the Jacobians J_t stretch a tangent vector along the trajectory."""
    state, tangent, total = (
        cell.initial_state(len(x)),
        torch.ones(len(x), cell.hidden_size) / math.sqrt(cell.hidden_size),
        0.0,
    )
    for drive in cell.drive(x).unbind(1):
        state, tangent = jvp(lambda h, drive=drive: cell.step(drive, h)[1], state, tangent)
        total += float(tangent.norm().log())
        tangent = tangent / tangent.norm()
    return total / x.shape[1]


def algorithms(cell: Cell, x: Tensor) -> dict[str, Callable[[int], Tensor]]:
    """Each gives all outputs of the GRU, or states of a minGRU of the same size, for the first n steps."""
    layer: Any = LAYERS["mingru"](LAYERS["mingru"].Config.make({"hidden_size": cell.hidden_size}), INPUTS)
    (decay, inputs), initial = layer.transition(x), layer.initial_state(len(x))  # they depend on x alone

    def run(form: str, length: int) -> Tensor:
        with using(form):
            return recur(cell, x[:, :length], cell.initial_state(len(x)))[0]

    return {
        "gru, loop": lambda n: run("reference", n),
        "mingru, scan": lambda n: linear_scan_chunked(decay[:, :n], inputs[:, :n], initial)[0],
        "gru, newton": lambda n: run("newton", n),
        "gru, sequential kernel": lambda n: run("auto", n),
        "mingru, loop": lambda n: linear_scan_reference(decay[:, :n], inputs[:, :n], initial)[0],
    }


def relative_error(found: Tensor, exact: Tensor) -> float:
    """The largest difference, over the largest value."""
    return float((found - exact).abs().max() / exact.abs().max())


def median_seconds(way: Callable[[int], Any], length: int) -> float:
    way(length)  # compiles, and warms up the caches
    return statistics.median(timeit.repeat(lambda: way(length), repeat=ROUNDS, number=1))


def scan_depth(length: int) -> int:
    """Of a work-efficient parallel scan: up and down a binary tree (Blelloch, 1990)."""
    return 2 * math.ceil(math.log2(length))


def depth(iterations: int, length: int) -> int:
    """A first guess, a linearisation before and after each scan, and the outputs."""
    return iterations * scan_depth(length) + iterations + 3


LAB = Lab(
    "parallel-in-time",
    "Recurrence",
    "A recurrent network computes one step after another, and is therefore said to be difficult to parallelize. Which "
    "recurrences can be computed for all steps at once, and when is that faster?",
    "Linear ones, always: the states of a minGRU are a scan, whose depth grows with the logarithm of the length, for "
    "twice the operations. Nonlinear ones by Newton's method, if the cell is contracting: an iteration is one step at "
    "all positions, then one scan. A GRU as it is initialised needs about 9 iterations, for 64 steps as for 4,096, so "
    "its depth falls from 4,096 to about 230, and the result is that of the loop up to rounding. The price is twelve "
    "times the operations. The count rises as the Lyapunov exponent nears 0; a chaotic network needs the loop.",
    {
        "mingru, scan: error": (0.0, 1e-5),
        "gru, newton: error": (0.0, 1e-5),
        "rnn, 4096 steps: iterations": (14, 30),
        "lstm, 4096 steps: iterations": (10, 20),
        "gru, 4096 steps: iterations": (7, 13),
        "gru: iterations at 4096 steps over those at 64": (0.9, 1.4),
        "rnn, gain 0.25: Lyapunov exponent": (-1.75, -1.2),
        "rnn, gain 0.25: iterations": (6, 11),
        "rnn, gain 0.5: Lyapunov exponent": (-1.1, -0.55),
        "rnn, gain 0.5: iterations": (12, 22),
        "rnn, gain 3: Lyapunov exponent": (0.05, 0.4),
        "rnn, gain 3: iterations": (newton.MAX_ITERATIONS, newton.MAX_ITERATIONS),
        "gru, loop: sequential depth of 4096 steps": (LONGEST, LONGEST),
        "mingru, scan: sequential depth of 4096 steps": (24, 24),
        "gru, newton: sequential depth of 4096 steps": (150, 350),
        "gru, newton: operations over the loop's": (10, 16),
    },
    experiment,
    "Depth is not time. On one core Newton overtakes the loop in Python, whose steps are many small calls, but not a "
    "compiled sequential kernel. On a GPU it was ahead of such a kernel at 512 units and 4,096 steps only. Training "
    "may also take a cell out of the contracting regime; then the certificate fails and the sequential form runs.",
    try_next={
        "units=128": "Does the number of iterations depend on the width?",
    },
)
