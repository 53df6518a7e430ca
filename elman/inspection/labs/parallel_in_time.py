"""Lab: computing all time steps in parallel, by a loop, a scan or Newton's method."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.functional import jvp

from elman.cells import CELLS, Cell
from elman.figures.figure import Figure
from elman.figures.panels import Bars, Lines
from elman.inspection.labs.lab import Expected, Lab, Progress, Result
from elman.layers import LAYERS
from elman.ops.scan import linear_scan_chunked, linear_scan_reference
from elman.recurrence import newton, recur, using

INPUTS, UNITS = 16, 32
LENGTHS = (16, 64, 256, 1024, 4096)
LONGEST = LENGTHS[-1]
GAINS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)  # spectral radius of the recurrent matrix
GAIN_STEPS = 512
ROUNDS = 3  # timed runs, of which the median is shown


def experiment(seed: int, progress: Progress) -> Result:
    torch.manual_seed(seed)
    x = torch.randn(1, LONGEST, INPUTS)
    cells = {name: CELLS[name](CELLS[name].Config(hidden_size=UNITS), INPUTS) for name in ("rnn", "lstm", "gru")}
    with torch.no_grad():
        iterations = {name: by_length(name, cell, x, progress) for name, cell in cells.items()}
        exponents, by_gain = gains(cells["rnn"], x[:, :GAIN_STEPS], progress)
        measured = errors(cells["gru"], x)
        seconds = times(cells["gru"], x)
    needed = iterations["gru"][-1]
    measured |= {f"{name}, {LONGEST} steps: iterations": counts[-1] for name, counts in iterations.items()}
    measured["gru: iterations at 4096 steps over those at 64"] = needed / iterations["gru"][LENGTHS.index(64)]
    for gain in (0.25, 0.5, 3.0):
        place = GAINS.index(gain)
        measured[f"rnn, gain {gain:g}: Lyapunov exponent"] = exponents[place]
        measured[f"rnn, gain {gain:g}: iterations"] = by_gain[place]
    depths = {"gru, loop": LENGTHS, "mingru, scan": [scan_depth(n) for n in LENGTHS]}
    depths["gru, newton"] = [depth(count, n) for count, n in zip(iterations["gru"], LENGTHS, strict=True)]
    measured |= {f"{name}: sequential depth of {LONGEST} steps": float(values[-1]) for name, values in depths.items()}
    measured["gru, newton: operations over the loop's"] = needed + 3
    lengths = np.array(LENGTHS)
    by_steps = Lines(
        {name: (lengths, np.array(counts)) for name, counts in iterations.items()},
        "time steps",
        "iterations",
        log_axes="x",
        title="Newton iterations until every step is solved, by length",
    )
    order = np.argsort(exponents)
    by_contraction = Lines(
        {"rnn": (np.array(exponents)[order], np.array(by_gain)[order])},
        "largest Lyapunov exponent (below 0 a difference of states shrinks)",
        "iterations",
        title=f"By how contracting the cell is ({GAIN_STEPS} steps; {newton.MAX_ITERATIONS}: given up)",
    )
    by_depth = Lines(
        {name: (lengths, np.array(values)) for name, values in depths.items()},
        "time steps",
        "operations in sequence",
        log_axes="xy",
        title="Sequential depth: what remains with unlimited processors",
    )
    work = Bars(
        ["operations over the loop's"],
        {"gru, loop": np.array([1]), "mingru, scan": np.array([2]), "gru, newton": np.array([needed + 3])},
        title="Work: what one processor must do",
    )
    by_clock = Lines(
        {name: (lengths, np.array(values)) for name, values in seconds.items()},
        "time steps",
        "seconds",
        log_axes="xy",
        title="Measured on this machine (loops in Python; not judged)",
    )
    figures = [
        Figure("How many iterations Newton needs", [by_steps, by_contraction]),
        Figure("What parallel in time costs", [by_depth, work, by_clock]),
    ]
    return Result(figures, measured)


def by_length(name: str, cell: Cell, x: Tensor, progress: Progress) -> list[int]:
    """Iterations until the certificate holds, for each length."""
    found = []
    for number, length in enumerate(LENGTHS, 1):
        certificate = solved(cell, x[:, :length])
        progress(name, number, len(LENGTHS), certificate.residual)
        found.append(certificate.iterations)
    return found


def gains(cell: Any, x: Tensor, progress: Progress) -> tuple[list[float], list[int]]:
    """Lyapunov exponents and iterations of an RNN whose recurrent matrix is random, with each spectral radius."""
    matrix = torch.randn(UNITS, UNITS) / math.sqrt(UNITS)
    exponents, iterations = [], []
    for number, gain in enumerate(GAINS, 1):
        cell.from_past.weight.copy_(gain * matrix)
        certificate = solved(cell, x)
        exponents.append(lyapunov_exponent(cell, x))
        iterations.append(certificate.iterations)
        progress("rnn, by gain", number, len(GAINS), certificate.residual)
    return exponents, iterations


def solved(cell: Cell, x: Tensor) -> newton.Certificate:
    return newton.solve(cell, cell.drive(x), cell.initial_state(len(x)))[2]


def lyapunov_exponent(cell: Cell, x: Tensor) -> float:
    """The mean logarithm per step by which the Jacobians J_t stretch a tangent vector along the trajectory."""
    state, tangent, total = cell.initial_state(len(x)), torch.ones(len(x), UNITS) / math.sqrt(UNITS), 0.0
    for drive in cell.drive(x).unbind(1):
        state, tangent = jvp(lambda h, drive=drive: cell.step(drive, h)[1], state, tangent)
        total += float(tangent.norm().log())
        tangent = tangent / tangent.norm()
    return total / x.shape[1]


def errors(cell: Cell, x: Tensor) -> dict[str, float]:
    """Largest differences from the loop, over the largest state."""
    state = cell.initial_state(len(x))
    outputs = {}
    for form in ("newton", "reference"):
        with using(form):
            outputs[form] = recur(cell, x, state)[0]
    decay, inputs, initial = minimal_gru(x)
    scanned, looped = (scan(decay, inputs, initial)[0] for scan in (linear_scan_chunked, linear_scan_reference))

    def relative(found: Tensor, exact: Tensor) -> float:
        return float((found - exact).abs().max() / exact.abs().max())

    return {
        "mingru, scan: error": relative(scanned, looped),
        "gru, newton: error": relative(outputs["newton"], outputs["reference"]),
    }


def minimal_gru(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The linear recurrence of a minGRU: decay and input of each step depend on x alone; and the initial state."""
    layer: Any = LAYERS["mingru"](LAYERS["mingru"].Config.make({"hidden_size": UNITS}), INPUTS)
    return *layer.transition(x), layer.initial_state(len(x))


def times(cell: Cell, x: Tensor) -> dict[str, list[float]]:
    """Seconds by length for each way."""
    decay, inputs, initial = minimal_gru(x)
    state = cell.initial_state(len(x))

    def run(form: str, length: int) -> None:
        with using(form):
            recur(cell, x[:, :length], state)

    ways: dict[str, Callable[[int], Any]] = {
        "gru, loop": lambda n: run("reference", n),
        "mingru, scan": lambda n: linear_scan_chunked(decay[:, :n], inputs[:, :n], initial),
        "gru, newton": lambda n: run("newton", n),
        "gru, sequential kernel": lambda n: run("auto", n),
        "mingru, loop": lambda n: linear_scan_reference(decay[:, :n], inputs[:, :n], initial),
    }
    return {name: [median_seconds(way, length) for length in LENGTHS] for name, way in ways.items()}


def median_seconds(way: Callable[[int], Any], length: int) -> float:
    way(length)  # compiles, and warms up the caches
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        way(length)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


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
        "mingru, scan: error": Expected(0.0, 1e-5),
        "gru, newton: error": Expected(0.0, 1e-5),
        "rnn, 4096 steps: iterations": Expected(14, 30),
        "lstm, 4096 steps: iterations": Expected(10, 20),
        "gru, 4096 steps: iterations": Expected(7, 13),
        "gru: iterations at 4096 steps over those at 64": Expected(0.9, 1.4),
        "rnn, gain 0.25: Lyapunov exponent": Expected(-1.75, -1.2),
        "rnn, gain 0.25: iterations": Expected(6, 11),
        "rnn, gain 0.5: Lyapunov exponent": Expected(-1.1, -0.55),
        "rnn, gain 0.5: iterations": Expected(12, 22),
        "rnn, gain 3: Lyapunov exponent": Expected(0.05, 0.4),
        "rnn, gain 3: iterations": Expected(newton.MAX_ITERATIONS, newton.MAX_ITERATIONS),
        "gru, loop: sequential depth of 4096 steps": Expected(LONGEST, LONGEST),
        "mingru, scan: sequential depth of 4096 steps": Expected(24, 24),
        "gru, newton: sequential depth of 4096 steps": Expected(150, 350),
        "gru, newton: operations over the loop's": Expected(10, 16),
    },
    experiment,
    "Depth is not time. On one core Newton overtakes the loop in Python, whose steps are many small calls, but not a "
    "compiled sequential kernel. On a GPU it was ahead of such a kernel at 512 units and 4,096 steps only. Training "
    "may also take a cell out of the contracting regime; then the certificate fails and the sequential form runs.",
)
