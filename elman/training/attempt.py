"""One attempt: a stack between a way in and a way out, trained on one task until it is solved or time is up."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.corpus.synthetic_tasks import Examples, SyntheticTask
from elman.models.stack import Stack, StackConfig, count_parameters
from elman.training.config import TrainingConfig
from elman.training.optimizers import make_optimizer
from elman.training.schedules import learning_rate

IN_ROW = 3  # validations that must find the task solved, one after the other
BATCHES = {"valid": 4, "test": 8}

Listen = Callable[[int, float], None]


class Outcome(NamedTuple):
    score: float  # of the test
    valid: float  # of the last validation
    steps: int
    steps_to_solved: int | None  # where the validations that ended the training began
    seconds: float
    parameters: int


class Solver(nn.Module):
    """Embedding or linear map, stack of layers, linear map to the answers."""

    def __init__(self, task: SyntheticTask, config: StackConfig):
        super().__init__()
        width = config.hidden_size
        self.enter = nn.Linear(task.channels, width) if task.channels else nn.Embedding(task.symbols, width)
        self.stack = Stack(config, width)
        self.answer = nn.Linear(self.stack.output_size, task.answers or 1)

    def forward(self, inputs: Tensor) -> Tensor:
        features, _ = self.stack(self.enter(inputs))
        return self.answer(features)


def attempt(
    task: SyntheticTask, config: StackConfig, training: TrainingConfig, seed: int, device: torch.device, listen: Listen
) -> Outcome:
    """What training came to."""
    return solve(task, config, training, seed, device, listen)[1]


def solve(
    task: SyntheticTask, config: StackConfig, training: TrainingConfig, seed: int, device: torch.device, listen: Listen
) -> tuple[Solver, Outcome]:
    """Train with fresh examples at every step; `listen` hears of each validation."""
    began = time.perf_counter()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Solver(task, config).to(device)
    optimizer = make_optimizer(model, training)
    solved: list[int] = []  # steps of the validations that found it solved, without a break
    valid = math.nan
    for step in range(training.max_steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training, step, training.max_steps)
        answers, targets = _asked(model, task.examples("train", step, training.batch_size, seed), device)
        optimizer.zero_grad(set_to_none=True)
        loss(task, answers, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_grad_norm or math.inf)
        optimizer.step()
        if (step + 1) % training.evaluate_every == 0:
            valid = judge(model, task, "valid", training.batch_size, seed, device)
            listen(step + 1, valid)
            solved = [*solved, step + 1] if task.is_solved(valid) else []
            if len(solved) == IN_ROW or not math.isfinite(valid):
                break
    return model, Outcome(
        score=judge(model, task, "test", training.batch_size, seed, device),
        valid=valid,
        steps=step + 1,
        steps_to_solved=solved[0] if solved else None,
        seconds=time.perf_counter() - began,
        parameters=count_parameters(model),
    )


def loss(task: SyntheticTask, answers: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(answers, targets) if task.answers else F.mse_loss(answers.squeeze(-1), targets)


@torch.no_grad()
def judge(model: nn.Module, task: SyntheticTask, split: str, rows: int, seed: int, device: torch.device) -> float:
    """The task's measure over fixed batches of a split; all have as many asked positions."""
    model.eval()
    scores = []
    for number in range(BATCHES[split]):
        answers, targets = _asked(model, task.examples(split, number, rows, seed), device)
        right = task.measure == "accuracy"
        scores.append((answers.argmax(-1) == targets).float().mean() if right else loss(task, answers, targets))
    model.train()
    return float(torch.stack(scores).mean())


def _asked(model: nn.Module, examples: Examples, device: torch.device) -> tuple[Tensor, Tensor]:
    """Answers and targets where they are asked."""
    inputs, targets, asked = (torch.from_numpy(part.copy()).to(device) for part in examples)
    if inputs.is_floating_point():
        inputs, targets = inputs.float(), targets.float()
    return model(inputs)[asked], targets[asked]
