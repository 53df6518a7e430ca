"""Training progress on stderr: a progress bar on a terminal, and a line for every validation."""

import sys
from textwrap import indent
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from elman.training import Report

SHOWN_NAMES = 10  # labels or tags listed at the start
SHORT = {"tokens": "tok", "target tokens": "tok"}  # units, for a progress bar that must not wrap
SHOWN_FIRST = ("valid_loss", "improved")


class Progress:
    """A listener of training reports: call it with each report."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr, highlight=False, force_jupyter=False)
        # Fits in 80 columns, since a progress bar must not wrap.
        columns = [BarColumn(bar_width=10), TextColumn("{task.completed}/{task.total}")]
        columns += [TextColumn("{task.fields[state]}"), TextColumn("left"), TimeRemainingColumn()]
        self.bar = Bar(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task: Any = None
        self.pseudo = False
        self.unit = "tok"

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def __call__(self, report: Report) -> None:
        try:
            getattr(self, f"_{report.kind}", lambda report: None)(report)
        except OSError:  # the terminal is gone; training goes on, and can save
            self.console.quiet = True

    def _note(self, report: Report) -> None:
        self.console.print(f"note: {report.values['text']}", style="yellow")

    def _start(self, report: Report) -> None:
        facts = report.values
        self.pseudo = facts["prediction"] != "left-to-right"
        self.unit = SHORT.get(facts["speed_unit"], facts["speed_unit"])
        sizes = ", ".join(f"{split} {size:,}" for split, size in facts["sizes"].items())
        weights = f"{facts['parameters']:,} parameters, " if facts["parameters"] else ""
        self.console.print(f"{weights}vocabulary {facts['vocabulary']:,}; {facts['unit']}: {sizes}")
        if "labels" in facts or "tags" in facts:
            names = facts.get("labels") or facts["tags"]
            more = f", … ({len(names)} in total)" if len(names) > SHOWN_NAMES else ""
            self.console.print(f"{'labels' if 'labels' in facts else 'tags'}: {', '.join(names[:SHOWN_NAMES])}{more}")
        for side, kind in facts.get("tokenizers", {}).items():
            self.console.print(f"{side}: {kind} tokens")
        threads = "1 thread" if facts["threads"] == 1 else f"{facts['threads']} threads"
        for line in dict.fromkeys(facts["layers"]):
            self.console.print(f"{facts['device']}, {threads}; {line}", style="dim")
        for repair in facts["repairs"]:
            self.console.print(f"repaired: {repair}", style="yellow")
        self.task = self.bar.add_task("training", total=facts["total_steps"], completed=report.step, state="")

    def _step(self, report: Report) -> None:
        values = report.values
        state = (
            f"epoch {report.epoch:.1f} loss {values['loss']:.3f} {report.clock['tokens_per_second']:,.0f} {self.unit}/s"
        )
        self.bar.update(self.task, completed=report.step, state=state)
        if values.get("skipped"):
            self.console.print(
                f"step {report.step}: {values['skipped']} updates skipped (loss or gradient not finite)", style="red"
            )

    def _validation(self, report: Report) -> None:
        mark = " *" if report.values["improved"] else ""
        place = f"step {report.step:>7,}  epoch {report.epoch:6.2f}"
        values = {key.removeprefix("valid_"): value for key, value in report.values.items() if key not in SHOWN_FIRST}
        short = {"perplexity": "pseudo-ppl"} if self.pseudo else {}  # a longer name would wrap the line
        scores = "".join(f"  {short.get(name, name)} {_figure(name, value)}" for name, value in values.items())
        loss, seconds = report.values["valid_loss"], report.clock["seconds"]
        self.console.print(f"{place}  validation loss {loss:.4f}{scores}  {seconds:,.0f} s{mark}")

    def _sample(self, report: Report) -> None:
        text = "\n".join(report.values["texts"])
        self.console.print(Text(indent(text, "  ", lambda line: True), style="dim"))

    def _end(self, report: Report) -> None:
        self.bar.update(self.task, completed=report.step)
        self.console.print(f"ended: {report.values['reason']}")


def _figure(name: str, value: float) -> str:
    return f"{value:,.2f}" if name == "perplexity" or value > 1 else f"{value:.4f}"
