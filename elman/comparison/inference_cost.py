"""Inference costs of a trained model: tokens generated or texts answered per second, and bytes of recurrent state.

The task says what work is timed (`inference_work`) and, for the report, what it leaves out (`cost_note`).
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from elman.comparison.budget import PER_PRODUCT
from elman.comparison.plan import Job
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.inspection import cost
from elman.models.stack import Block, count_parameters
from elman.ops.state import tensors
from elman.pipeline.tasks import PreparedData
from elman.pipeline.trained_model import TrainedModel, load
from elman.runs import FileManifest

TIMED = 0.4  # seconds of work that are timed


def inference_cost(job: Job, prepared: PreparedData, split: str) -> dict[str, Any]:
    """Of a trained job. Kept beside it, since a clock never gives the same twice."""
    kept = job.folder / "speed.json"
    if not kept.exists():
        FileManifest(job.folder).write(kept.name, json.dumps(measure(load(job.folder), prepared, split)).encode())
    return job.read(kept.name)


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


def layer_costs(model: Any, length: int) -> list[dict[str, Any]]:
    """For each layer from bottom to top: FLOPs per position of a row of that length, for training and for a step."""
    costs = []
    for block in (part for part in model.modules() if isinstance(part, Block)):
        layer: Any = deepcopy(block.layer)
        found = cost.measure(layer, length)
        own = {"layer": block.kind, "parameters": count_parameters(layer), "state": found.state}
        own["training_flops"] = PER_PRODUCT * found.training
        own["stepping_flops"] = None if found.stepping is None else PER_PRODUCT * found.stepping
        costs.append(own)
    return costs
