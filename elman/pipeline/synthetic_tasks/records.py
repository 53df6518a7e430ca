"""Results of attempts: one line of JSON each, kept in a file, so that finished attempts are never repeated."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elman import files
from elman.config import Config
from elman.corpus.synthetic_tasks import TASKS, SyntheticTask
from elman.errors import ConfigError, RunError, UnknownName
from elman.jsonable import jsonable
from elman.pipeline.families import fitted
from elman.runs.metrics import MetricsLog, read_metrics
from elman.training.config import TrainingConfig
from elman.training.synthetic_tasks import train_on_task

COMMON: dict[str, Any] = {"optimizer": "adam", "schedule": "cosine", "clip_grad_norm": 1.0, "evaluate_every": 100}


class Size(NamedTuple):
    """How much is spent on each attempt."""

    parameters: int  # of the stack; the ways in and out come on top
    training: TrainingConfig


SIZES = {
    "quick": Size(20_000, TrainingConfig(batch_size=32, max_steps=1500, learning_rate=3e-3, warmup_steps=50, **COMMON)),
    "full": Size(
        100_000, TrainingConfig(batch_size=128, max_steps=3000, learning_rate=2e-3, warmup_steps=100, **COMMON)
    ),
}


def key(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True)


class Record(Config):
    """One finished attempt, as a line of the file."""

    task: str
    family: str
    seed: int
    settings: dict[str, Any]
    """Of task, stack and training: attempts with other settings are other attempts."""
    score: float | None
    """The task's measure on its test; null where training came to no finite number."""
    valid: float | None
    solved: bool
    steps: int
    steps_to_solved: int | None
    seconds: float
    parameters: int
    device: str

    @property
    def key(self) -> str:
        return key(self.task, self.family, self.seed, self.settings)


class Attempt(NamedTuple):
    """One attempt to come."""

    task: SyntheticTask
    family: str
    seed: int
    size: Size

    @property
    def key(self) -> str:
        return key(self.task.name, self.family, self.seed, self.settings())

    def settings(self) -> dict[str, Any]:
        stack = fitted(self.family, self.size.parameters)
        return {"task": self.task.config.plain(), "stack": stack.plain(), "training": self.size.training.plain()}

    def run(self, device: torch.device, listen: Callable[[int, float], None]) -> Record:
        stack = fitted(self.family, self.size.parameters)
        _, outcome = train_on_task(self.task, stack, self.size.training, self.seed, device, listen)
        return Record(
            task=self.task.name,
            family=self.family,
            seed=self.seed,
            settings=self.settings(),
            solved=self.task.is_solved(outcome.score),
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            **jsonable(outcome),
        )


def plan(tasks: Iterable[str], families: Sequence[str], size: str, seeds: int) -> list[Attempt]:
    """Every task with every family and seed, all names checked before anything runs."""
    if size not in SIZES:
        raise UnknownName("size", size, SIZES)
    for family in families:
        fitted(family, 1)
    built = []
    for name in tasks:
        kind = TASKS[name]
        built.append(kind(kind.Config.make(kind.quick if size == "quick" else {}, where=f"task.{name}")))
    return [
        Attempt(task, family, seed, SIZES[size])
        for task in built
        for family in families
        for seed in range(1, seeds + 1)
    ]


def carry_out(
    attempts: Iterable[Attempt],
    path: Path,
    device: torch.device,
    listen: Callable[[Attempt, int, float], None] = lambda attempt, step, score: None,
) -> Iterator[Record]:
    """The records of all attempts, those of earlier calls read from the file, each new one added when it is done."""
    files.make_folder(path.absolute().parent)
    log = MetricsLog(path)
    done = {record.key: record for record in read_records([path])}
    for one in attempts:
        if one.key not in done:
            done[one.key] = one.run(device, partial(listen, one))
            log.write(done[one.key].plain())
        yield done[one.key]


def read_records(paths: Iterable[Path]) -> list[Record]:
    """All results in some files, in their order."""
    records = []
    for path in paths:
        for number, line in enumerate(read_metrics(path), start=1):
            try:
                records.append(Record.make(line))
            except ConfigError as error:
                raise RunError(f"{path}, line {number}: no result of a task: {error}") from None
    return records
