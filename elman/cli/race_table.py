"""Progress and results of `elman compare`: a live table (a line per event without a terminal) and the verdict."""

import sys
import time
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from elman.cli import output
from elman.comparison import RaceResults, RaceRun
from elman.comparison.plan import Job
from elman.comparison.results import curve
from elman.comparison.scheduler import Event
from elman.comparison.verdict import effort, headline, number, seeds_of, short, spread, staircase, unit_of

SPEEDS = {"generation_tokens": "gen/s", "answers": "pred/s"}


class RaceTable:
    """A listener of race events."""

    def __init__(self, running: RaceRun):
        self.running, self.began = running, time.monotonic()
        self.console = Console(file=sys.stderr, highlight=False)
        self.states: dict[str, dict[str, str]] = {entrant.name: {} for entrant in running.plan.entrants}
        self.live = Live(console=self.console, auto_refresh=False, transient=True) if self.console.is_terminal else None

    def __enter__(self) -> Self:
        plan = self.running.plan
        size = f"{short(plan.parameters)} parameters" if plan.parameters else "different sizes"
        self._say(
            f"{len(plan.entrants)} models of {size}, {seeds_of(plan)}, "
            f"{effort(plan)} each, {self.running.workers} in parallel"
        )
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, event: Event) -> None:
        if event.job is not None:
            state = {"done": _reached(event.job), "failed": "failed", "started": "…"}.get(event.kind, "")
            self.states[event.job.entrant][event.job.label] = state
            if event.kind == "failed":
                lines = event.text.strip().splitlines() or [""]
                self._say(f"{event.job.name}: failed: {lines[-1]} ({event.job.folder / 'train.log'})")
            elif event.kind == "done" and not self.live:
                self._say(f"{event.job.name}: {state}, {time.monotonic() - self.began:,.0f} s")
        if self.live:
            for job in event.running:
                self.states[job.entrant][job.label] = f"… {_reached(job)}"
            self.live.update(self._grid(event.left), refresh=True)

    def _grid(self, left: int) -> Grid:
        plan = self.running.plan
        seeds = [f"seed-{number}" for number in range(1, plan.race.seeds + 1)]
        grid = Grid(caption=f"{time.monotonic() - self.began:,.0f} s, {left} waiting", header_style="bold")
        for column in ("model", "parameters", "learning rate", *seeds):
            grid.add_column(column, justify="left" if column == "model" else "right")
        for entrant in plan.entrants:
            own = self.states[entrant.name]
            rate = self.running.rates.get(entrant.name)
            tries = [state for label, state in own.items() if label.startswith("rate-")]
            trying = f"trying {len(tries)}/{max(len(tries), plan.race.trials)}" if tries and rate is None else ""
            size = "counted" if entrant.counted else f"{entrant.parameters:,}"
            cells = [entrant.name, size, f"{rate:g}" if rate else trying, *(own.get(seed, "") for seed in seeds)]
            grid.add_row(*(Text(cell) for cell in cells))
        return grid

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


def _reached(job: Job) -> str:
    points = curve(job)
    return f"loss {points[-1][1]:.4f}" if points else ""


def show_results(found: RaceResults, running: RaceRun, report: Path) -> None:
    """The verdict, then the table of scores and costs."""
    output.say(headline(found))
    steps = staircase(found)
    if steps:
        output.say(steps)
    rows: list[list[Any]] = []
    for row in found.rows:
        if row["place"] is None:
            rows.append([row["entrant"], "failed", *([None] * 6)])
            continue
        interval = spread(found, row)
        excess = None if row.get("relative_excess") is None else f"{row['relative_excess']:.1%}"
        figures = [number(found, row["score"]) + (f" ± {interval}" if interval else ""), excess]
        costs = [short(row["parameters"] or None), short(row["training_flops_per_token"])]
        speeds = [row["training_tokens_per_second"], *(row.get(f"{what}_per_second") for what in SPEEDS)]
        rows.append([row["entrant"], *figures, *costs, *(None if one is None else round(one) for one in speeds)])
    heads = ["model", found.measure.key, "excess", "params", "FLOPs", "train/s", *SPEEDS.values()]
    known = [place for place in range(len(heads)) if any(row[place] is not None for row in rows)]
    heads, rows = [heads[place] for place in known], [[row[place] for place in known] for row in rows]
    output.table(f"{found.measure.key.replace('_', ' ')}: {found.measure.words}, {found.split}", heads, rows)
    if "excess" in heads:
        print("excess: loss above the entropy of the language, which is the best possible loss.")
    unit = unit_of(running.plan)
    print(f"FLOPs: training (forward and backward), per unit; train/s: units per second. Units are {unit}.")
    if "gen/s" in heads:
        print("gen/s: tokens generated per second, one text at a time.")
    if "pred/s" in heads:
        print("pred/s: texts predicted per second, one at a time.")
    for name, failures in running.failures.items():
        print(f"{name} failed: {', '.join(failures)}")
    print(f"Report: {report}")
