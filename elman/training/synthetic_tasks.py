"""Trains a small model on a synthetic task, with fresh examples at every step, until validation finds it solved."""

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples
from elman.corpus.synthetic_tasks import SyntheticExamples, SyntheticTask
from elman.errors import TrainingError
from elman.models.stack import Stack, StackConfig, count_parameters
from elman.training.config import TrainingConfig
from elman.training.loop import Trainer

SOLVED_IN_A_ROW = 3  # consecutive validations that must find the task solved before training stops
NUM_BATCHES = {"valid": 4, "test": 8}

OnValidation = Callable[[int, float], None]  # called with the step and the validation score


class TaskResult(NamedTuple):
    score: float  # of the test; NaN where training diverged
    valid: float  # of the last validation
    steps: int
    steps_to_solved: int | None  # step of the first of the consecutive validations that ended training
    seconds: float
    parameters: int


class TaskModel(nn.Module):
    """Embedding (symbols) or linear projection (values), a stack of layers, and a linear output at every position."""

    def __init__(self, task: SyntheticTask, config: StackConfig):
        super().__init__()
        width = config.hidden_size
        self.task = task
        self.enter = nn.Linear(task.channels, width) if task.channels else nn.Embedding(task.symbols, width)
        self.stack = Stack(config, width)
        self.answer = nn.Linear(self.stack.output_size, task.answers or 1)

    def forward(self, inputs: Tensor) -> Tensor:
        features, _ = self.stack(self.enter(inputs))
        return self.answer(features)

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Mean loss over the masked-in positions, times the number of rows that the trainer divides by."""
        return self.loss(*self.at_mask(batch)) * batch.size, None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets) if self.task.answers else F.mse_loss(outputs.squeeze(-1), targets)

    def at_mask(self, batch: Examples) -> tuple[Tensor, Tensor]:
        """Outputs and targets at the positions that count."""
        mask = batch.plain("mask")
        return self(batch.plain("inputs"))[mask], batch.plain("targets")[mask]


class GeneratedBatches(NamedTuple):
    """One epoch of this many steps, each with a new batch that `make` gives for its index."""

    steps: int
    make: Callable[[int], Examples]

    def length_of(self, number: int) -> int:
        return self.steps

    def epoch(self, number: int, start: int = 0) -> Iterator[Examples]:
        return map(self.make, range(start, self.steps))


def task_batches(task: SyntheticTask, split: str, rows: int, steps: int, seed: int) -> GeneratedBatches:
    return GeneratedBatches(steps, lambda index: as_batch(task.examples(split, index, rows, seed)))


def as_batch(examples: SyntheticExamples) -> Examples:
    fields = {name: torch.from_numpy(array.copy()) for name, array in examples._asdict().items()}
    return Examples({name: x.float() if x.is_floating_point() else x for name, x in fields.items()})


def train_on_task(
    task: SyntheticTask,
    config: StackConfig,
    training: TrainingConfig,
    seed: int,
    device: torch.device,
    on_validation: OnValidation = lambda step, score: None,
) -> tuple[TaskModel, TaskResult]:
    """The trained model and its scores. Training also stops where a validation score is not finite."""
    began = time.perf_counter()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = TaskModel(task, config)
    valid = math.nan
    solved: list[int] = []  # steps of the latest consecutive validations that found the task solved

    def scored(split: str) -> float:
        return task_score(model, task_batches(task, split, training.batch_size, NUM_BATCHES[split], seed), device)

    def validate() -> float:
        nonlocal valid, solved
        valid, step = scored("valid"), trainer.step
        on_validation(step, valid)
        solved = [*solved, step] if task.is_solved(valid) else []
        if len(solved) == SOLVED_IN_A_ROW or not math.isfinite(valid):
            trainer.stop("the task is solved" if solved else "training diverged")
        return 1 - valid if task.measure == "accuracy" else valid

    batches = task_batches(task, "train", training.batch_size, training.max_steps, seed)
    trainer = Trainer(model, batches, training, device=device, validate=validate)
    try:
        for _ in trainer:
            pass
        score = scored("test")
    except TrainingError:  # too many updates in a row that were not finite
        score = math.nan
    return model, TaskResult(
        score=score,
        valid=valid,
        steps=trainer.step,
        steps_to_solved=solved[0] if solved else None,
        seconds=time.perf_counter() - began,
        parameters=count_parameters(model),
    )


@torch.no_grad()
def task_score(model: TaskModel, batches: GeneratedBatches, device: torch.device) -> float:
    """The task's measure, a mean over batches with equally many masked-in positions."""
    model.eval()
    scores = []
    for batch in batches.epoch(0):
        outputs, targets = model.at_mask(batch.to(device))
        accuracy = model.task.measure == "accuracy"
        scores.append((outputs.argmax(-1) == targets).float().mean() if accuracy else model.loss(outputs, targets))
    model.train()
    return float(torch.stack(scores).mean())
