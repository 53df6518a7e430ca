"""Trackers as listeners: TensorBoard and Weights & Biases see the reports that everyone sees."""

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
        self.make, self.folder, self.writer = SummaryWriter, folder, None

    def __call__(self, report: Report) -> None:
        self.writer = self.writer or self.make(str(self.folder / "tensorboard"))  # after the run folder is there
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
        self.run = wandb.init(project="elman", name=folder.name, config=recipe.plain())

    def __call__(self, report: Report) -> None:
        if report.kind in SHOWN:
            self.run.log(numbers(report), step=report.step)
        if report.kind == "end":
            self.run.finish()


def numbers(report: Report) -> dict[str, float]:
    values = {**report.values, **report.clock, "epoch": report.epoch, "tokens": report.tokens}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
