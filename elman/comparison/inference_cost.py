"""Inference costs of a trained model: tokens generated or texts answered per second, and bytes of recurrent state.

The task says what work is timed (`inference_work`) and, for the report, what it leaves out (`cost_note`).
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from elman.comparison.flops import layer_costs
from elman.comparison.plan import Job
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.ops.state import tensors
from elman.pipeline.tasks import PreparedData
from elman.pipeline.trained_model import TrainedModel, load
from elman.runs import atomic_write

TIMED = 0.4  # seconds of work that are timed


def inference_cost(job: Job, prepared: PreparedData, split: str) -> dict[str, Any]:
    """Of a trained job. Kept beside it, since a clock never gives the same twice."""
    kept = job.folder / "speed.json"
    if kept.exists():
        return json.loads(kept.read_text())
    found = measure(load(job.folder), prepared, split)
    atomic_write(kept, json.dumps(found).encode())
    return found


def measure(trained: TrainedModel, prepared: PreparedData, split: str) -> dict[str, Any]:
    model, found = trained.model, dict[str, Any]()
    work = trained.task.inference_work(trained, prepared, split)
    if work.turns is not None:
        found[work.rate] = speed(model, work.turns)
    if work.state_after is not None:
        found["state_bytes"] = state_bytes(model, work.state_after, work.contexts)
    if work.sequence_length:
        found["layers"] = layer_costs(model, work.sequence_length)
    return found


def speed(model: Any, turns: Iterator[int]) -> float:
    """Units of work per second; each turn yields its number of units. The first turn, a warm-up, is not counted."""
    with inference_mode(model):
        next(turns)
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < TIMED:
            done += next(turns)
        return done / passed


def state_bytes(model: Any, state_after: Callable[[Tensor], Any], contexts: Sequence[int]) -> list[dict[str, int]]:
    """Bytes of the recurrent state of one row after each number of tokens."""
    sizes = []
    for context in contexts:
        with inference_mode(model):
            state = state_after(torch.zeros(1, context, dtype=torch.long, device=device_of(model)))
        size = sum(part.numel() * part.element_size() for _, part in tensors(state))
        sizes.append({"tokens": context, "bytes": size})
    return sizes
