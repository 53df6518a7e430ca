"""Layers with a linear recurrence on one CPU thread: parallel scan against a Python loop of steps.

Batch 1, interleaved rounds, CPU time; training is forward and backward. Then peak memory of training at three lengths,
each in its own process: it should be proportional to the length.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.reporting import show
from elman.bench.harness import compare, interleaved
from elman.layers import LAYERS, SequenceLayer

NAMES = ("mingru", "minlstm", "s4d", "s4", "mamba", "linear-attention")
LENGTH, WIDTHS, LENGTHS = 4096, (64, 256), (1024, 2048, 4096)


def build(name: str, width: int) -> SequenceLayer:
    torch.manual_seed(0)
    kind: Any = LAYERS[name]
    return kind(kind.Config(), width)


def stepped(layer: SequenceLayer, x: Tensor) -> Tensor:
    state, outputs = layer.initial_state(len(x)), []
    for one in x.unbind(1):
        output, state = layer.step(one, state)
        outputs.append(output)
    return torch.stack(outputs, 1)


def variants(layer: SequenceLayer, x: Tensor, training: bool) -> dict[str, Callable[[], Any]]:
    def running(form: Callable[[], Tensor]) -> Callable[[], Any]:
        def infer() -> None:
            with torch.inference_mode():
                form()

        def train() -> None:
            layer.zero_grad()
            form().sum().backward()

        return train if training else infer

    return {"stepping": running(lambda: stepped(layer, x)), "at once": running(lambda: layer(x)[0])}


def peak(name: str, width: int, length: int) -> float:
    """Peak memory growth in MB of forward and backward over one sequence."""
    layer = build(name, width)
    before = _peak()
    layer(torch.randn(1, length, width, requires_grad=True))[0].sum().backward()
    return _peak() - before


def _peak() -> float:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def measure(rounds: int, names: tuple[str, ...] = NAMES) -> dict[str, Any]:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for name in names:
        found: dict[str, Any] = {"speed": {}, "peak_megabytes": {}}
        for width in WIDTHS:
            layer, x = build(name, width), torch.randn(1, LENGTH, width)
            for mode in ("inference", "training"):
                pair = variants(layer, x, mode == "training")
                seconds = interleaved(pair, rounds, warmup=1, clock=time.process_time)
                found["speed"][f"{mode}, width {width}"] = table = compare(seconds, "stepping")
                show(f"{name}: {mode}, width {width}, {LENGTH} steps", table, "stepping")
        for length in LENGTHS:
            words = [sys.executable, "-m", "benchmarks.scans", name, str(WIDTHS[-1]), str(length)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found["peak_megabytes"][length] = json.loads(done.stdout)
        print(f"  peak of memory in training, width {WIDTHS[-1]}: {found['peak_megabytes']} MB", flush=True)
        results[name] = found
    return results


if __name__ == "__main__":  # peak memory of one layer, in its own process
    torch.set_num_threads(1)
    print(json.dumps(peak(sys.argv[1], *map(int, sys.argv[2:]))))
