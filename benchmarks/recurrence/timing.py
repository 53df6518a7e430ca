"""How fast the variants of a case are: microseconds for each step, in rounds that take turns.

The device is kept busy for two milliseconds before each call, as it is in training: what the host does until the call
can begin counts only as far as it takes longer.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.recurrence.cases import Case
from benchmarks.recurrence.peers import Variant, variants
from elman.ops import kernel_timeout

REPEATS = 30
WARMUP = 3
AHEAD = 4_000_000  # cycles


def clock(case: Case, kinds: list[str], partitions: list[dict[str, Any]], device: str, form: str) -> dict[str, Any]:
    """For each pass and variant median and quartiles, or the reason why it has none."""
    case.set_precision()
    made = variants(case, kinds, partitions, device, form)
    found = {way: timed(made, way, device) for way in ("forward", "training")}
    if device == "cuda":
        torch.cuda.empty_cache()
    return found


def timed(made: dict[str, Variant | str], way: str, device: str) -> dict[str, Any]:
    """A variant that fails tells its error; the others go on."""
    found: dict[str, Any] = {name: problem for name, problem in made.items() if isinstance(problem, str)}
    going: dict[str, Variant] = {}
    for name, one in made.items():
        if isinstance(one, Variant):
            try:
                for _ in range(WARMUP):
                    one.passes[way]()
                settled(device)
                going[name] = one
            except Exception as problem:
                found[name] = f"{type(problem).__name__}: {str(problem)[:300]}"
    spans: dict[str, list[float]] = {name: [] for name in going}
    for _ in range(REPEATS):
        for name, one in going.items():
            spans[name].append(microseconds(one.passes[way], device) / one.steps)
    settled(device)
    for name, own in spans.items():
        low, middle, high = statistics.quantiles(own, n=4)
        found[name] = {"us": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}
    return {name: found[name] for name in made}


def settled(device: str) -> None:
    """Everything has run, and no kernel gave up waiting."""
    if device == "cuda":
        torch.cuda.synchronize()
        kernel_timeout.check(torch.device("cuda", 0), wait=True)


def microseconds(run: Callable[[], Any], device: str) -> float:
    """By events of the device, or by the clock where it has none."""
    if device != "cuda":
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began) * 1e6
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(AHEAD)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3
