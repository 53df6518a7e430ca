"""Timing in interleaved rounds, and peak memory.

All variants in one process take turns; speed-ups are medians of per-round ratios. Memory is resident set size (RSS) on
the CPU, allocated memory on CUDA.
"""

import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

PEERS = ("triton", "onnxruntime", "kenlm", "numpy")
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def interleaved(
    variants: dict[str, Callable[[], Any]],
    rounds: int,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each variant in each round, after some untimed warm-up calls.

    With one thread, `time.process_time` as clock excludes the time that other processes take.
    """
    for run in variants.values():
        for _ in range(warmup):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            began = clock()
            run()
            seconds[name].append(clock() - began)
    return seconds


def compare(seconds: dict[str, list[float]], against: str) -> dict[str, dict[str, float]]:
    """For each variant: best time in ms, and its speed-up over `against` (median) with quartiles (low, high)."""
    table = {}
    for name, own in seconds.items():
        ratios = sorted(theirs / mine for mine, theirs in zip(own, seconds[against], strict=True))
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        row = {"ms": min(own) * 1e3, "faster": statistics.median(ratios)}
        table[name] = {**row, "low": quartiles[0], "high": quartiles[2]}
    return table


def machine() -> dict[str, Any]:
    """Processor, threads, GPU, and versions of Python, torch and the peer libraries."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    facts = {"cpu": _cpu(), "threads": torch.get_num_threads(), "gpu": gpu}
    peers = {name: version(name) for name in PEERS if find_spec(name)}
    return {**facts, "python": platform.python_version(), "torch": torch.__version__, **peers}


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


class Peak:
    """`bytes`: growth of memory in the block over its level at the start; known when the block has ended."""

    bytes: int = 0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measures peak memory growth on the device. On the CPU it is that of the whole process (peak RSS)."""
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
        return
    with suppress(OSError):
        RESET.write_text("5")  # Linux: peak RSS starts again at the current RSS
    before = _rss("VmRSS")
    yield peak
    peak.bytes = max(0, _rss("VmHWM") - before)


def _rss(field: str) -> int:
    """Resident set size in bytes, current (VmRSS) or peak (VmHWM); outside Linux only the peak is known."""
    if STATUS.exists():
        [line] = [line for line in STATUS.read_text().splitlines() if line.startswith(field)]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
