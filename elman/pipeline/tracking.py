"""TensorBoard and Weights & Biases as listeners of training reports."""

from html import escape
from pathlib import Path
from textwrap import indent
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
        if report.kind == "sample":
            self.writer.add_text("samples", indent(sample_of(report), "    "), report.step)  # indented: as it is
            for name, values in histograms(report).items():
                self.writer.add_histogram(name, values, report.step)
        if report.kind == "end":
            self.writer.close()


class Wandb:
    def __init__(self, folder: Path, recipe: Any):
        try:
            import wandb
        except ImportError:
            raise MissingExtra("--wandb", "wandb", "tracking") from None
        self.library, self.folder, self.recipe = wandb, folder, recipe
        self.run: Any = None

    def __call__(self, report: Report) -> None:
        self.run = self.run or self.library.init(project="elman", name=self.folder.name, config=self.recipe.plain())
        if report.kind in SHOWN:
            self.run.log(numbers(report), step=report.step)
        if report.kind == "sample":
            shown = {"samples": self.library.Html(f"<pre>{escape(sample_of(report))}</pre>")}
            shown |= {name: self.library.Histogram(values) for name, values in histograms(report).items()}
            self.run.log(shown, step=report.step)
        if report.kind == "end":
            self.run.finish()


def sample_of(report: Report) -> str:
    return "\n---\n".join(report.values["texts"])


def histograms(report: Report) -> dict[str, Any]:
    """The weights of each matrix, with names that group them."""
    assert report.weights is not None
    return {f"weights/{name}": one.detach().float().cpu().numpy() for name, one in report.weights().items()}


def numbers(report: Report) -> dict[str, float]:
    values = {**report.values, **report.clock, "epoch": report.epoch, "tokens": report.tokens}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
