"""TensorBoard and Weights & Biases as listeners of training reports."""

from pathlib import Path
from typing import Any

from elman.errors import MissingExtra
from elman.training import Report

SHOWN = ("step", "validation")


class TensorBoard:
    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("--tensorboard", "tensorboard", "tracking") from None
        self.make, self.folder = SummaryWriter, folder
        self.writer: Any = None

    def __call__(self, report: Report) -> None:
        if self.writer is None:  # once the run folder exists; purges steps that a resumed run repeats
            self.writer = self.make(str(self.folder / "tensorboard"), purge_step=report.step + 1)
        if report.kind in SHOWN:
            for name, value in numbers(report).items():
                self.writer.add_scalar(name, value, report.step)
        if report.kind == "end":
            self.writer.close()


class Wandb:
    def __init__(self, folder: Path, recipe: Any):
        try:
            import wandb
        except ImportError:
            raise MissingExtra("--wandb", "wandb", "tracking") from None
        self.make, self.folder, self.recipe = wandb.init, folder, recipe
        self.run: Any = None

    def __call__(self, report: Report) -> None:
        self.run = self.run or self.make(project="elman", name=self.folder.name, config=self.recipe.plain())
        if report.kind in SHOWN:
            self.run.log(numbers(report), step=report.step)
        if report.kind == "end":
            self.run.finish()


def numbers(report: Report) -> dict[str, float]:
    values = {**report.values, **report.clock, "epoch": report.epoch, "tokens": report.tokens}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
