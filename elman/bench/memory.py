"""Peak memory of a block of code: resident set size on the CPU, allocated memory on CUDA."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


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
