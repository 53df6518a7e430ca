"""The report of a sweep: one HTML page with the best settings, importance, parallel coordinates, and all trials."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from elman.comparison.plan import alone_in
from elman.comparison.race_figures import SIZE
from elman.comparison.report import failures_table, without_breaks
from elman.comparison.spaces import Interval, Space, short_names, shown
from elman.comparison.sweep_results import BEST, SweepResults
from elman.comparison.sweep_run import SweepRun
from elman.comparison.verdict import join, number, short
from elman.figures.figure import Figure
from elman.figures.panels import Bars, Lines, Panel, Parallel
from elman.figures.render_html import block, page, section, table
from elman.runs import atomic_write

EDGE = 0.04  # share of an interval
SHOWN = 75  # percentile of the scores that charts show; the rest lies at their edge
FEW_TRIALS = 10  # below, the importance of a setting is chance
TICKS = 6  # labels on an axis at most


def write_sweep_report(found: SweepResults, running: SweepRun, arguments: Sequence[str]) -> Path:
    """Writes report.html in the folder of the sweep, and its figures in plots/."""
    again = ["sweep", str(running.folder / "sweep.yaml"), "--run", f"{running.folder}-again"]
    own = [word for path in running.modules for word in ("--module", str(path))]
    best = ["train", str(running.folder / BEST), "--run", f"{running.folder}-best"]
    given = [[*arguments]] if arguments and arguments[0] == "sweep" else [[*again, *own]]
    commands = [f"elman {shlex.join(words)}" for words in [*given, [*best, *own]]]
    figures = [replace(one, command=commands[0]) for one in sweep_figures(found, running)]
    blocks = "".join(block(one, tables=False, name=f"figure-{n}") for n, one in enumerate(figures))
    lines = "\n".join(f"<code>{escape(command)}</code>" for command in commands)
    parts = [
        *(f"<p>{without_breaks(text)}</p>" for text in advice(found, running)),
        f'<p class="facts">{escape(summary(found, running))}</p>',
        section("Best settings", _best(found, running), "best"),
        f'<div class="columns">{blocks}</div>',
        section("All trials", _trials(found, running), "trials"),
        failures_table([(f"trial {number}", text) for number, text in running.failures.items()]),
        section("Method", _method(running), "method"),
        section("Reproduce", f"<p>The sweep, and the training of the best:</p><pre>{lines}</pre>", "again"),
    ]
    path = running.folder / "report.html"
    heading = without_breaks(headline(found, running).removesuffix("."))
    with alone_in(running.folder):
        for name, figure in zip(("history", "importance", "parallel"), figures, strict=True):
            figure.save_images(running.folder / "plots" / name)
        atomic_write(path, page("Sweep", [part for part in parts if part], heading).encode())
    return path


def headline(found: SweepResults, running: SweepRun) -> str:
    """The best trial, its score and its settings, in a sentence."""
    best, measure = found.best, found.measure
    settings = join([f"{key} {shown(value)}" for key, value in best["settings"].items()])
    what = "" if measure.key in measure.words else f" {measure.words}"
    value = f"{measure.key.replace('_', ' ')} {number(found, best['score'])}{what}"
    return f"Best of {len(found.rows)} trials: {value} on validation data, with {settings}."


def advice(found: SweepResults, running: SweepRun) -> list[str]:
    """What the best has on test data, what mattered, and which space was too narrow."""
    lines, best = [], found.best
    if best.get("test") is not None:
        lines.append(f"On test data, which chose nothing, it has {number(found, best['test'])}.")
    judged = sum(row["score"] is not None for row in found.rows)
    if found.importance and judged < FEW_TRIALS:
        lines.append(f"{judged} trials are too few to tell which setting matters.")
    elif found.importance and (most := next(iter(found.importance.items())))[1] > 0:
        lines.append(f"{most[0]} matters most: alone it explains {most[1]:.0%} of the variance of the ranks.")
    edges = [key for key, space in running.spaces.items() if isinstance(space, Interval) and _at_edge(space, best, key)]
    if edges:
        lines.append(f"The best {join(edges)} is at the edge of its space: a wider one may give a better score.")
    return lines


def _at_edge(space: Interval, best: dict[str, Any], key: str) -> bool:
    return not EDGE < space.place(best["settings"][key]) < 1 - EDGE


def summary(found: SweepResults, running: SweepRun) -> str:
    counts = {kind: sum(row["outcome"] == kind for row in found.rows) for kind in ("complete", "pruned", "failed")}
    numbers = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    sizes = ", ".join(f"{split} {size:,}" for split, size in running.split_sizes.items())
    return f"Task {running.task.name}; {running.task.unit}: {sizes}. Trials: {numbers}."


def sweep_figures(found: SweepResults, running: SweepRun) -> list[Figure]:
    """History of the best, importance of settings, parallel coordinates."""
    return [_history(found), _importance(found), _parallel(found, running)]


def _figure(title: str, panel: Panel, note: str) -> Figure:
    return Figure(title, [panel], [note])


def _history(found: SweepResults) -> Figure:
    sign = 1 if found.measure.lower_is_better else -1
    rows = [row for row in found.rows if row["score"] is not None]
    complete = [sign * row["score"] if row["outcome"] == "complete" else np.inf for row in rows]
    best = sign * np.minimum.accumulate(complete)
    numbers, scores = (np.array([row[key] for row in rows], dtype=np.float64) for key in ("trial", "score"))
    low, high = _range(found)
    margin = 0.06 * (high - low) or 0.01
    panel = Lines(
        {"best so far": (numbers, best)},
        "trial",
        f"{found.measure.key.replace('_', ' ')} on validation data",
        limits=(low - margin, high + margin),
        raw={"best so far": (numbers, np.clip(scores, low, high))},
        raw_points=True,
        size=SIZE,
    )
    changes = [n for n, (one, before) in enumerate(zip(best, [np.inf, *best[:-1]], strict=True)) if one != before]
    steps = "; ".join(f"trial {numbers[n]:.0f} {number(found, best[n])}" for n in changes if np.isfinite(best[n]))
    note = f"Points: each trial; the worst quarter lies at the edge. New bests: {steps}."
    return _figure("History of the best", panel, note)


def _importance(found: SweepResults) -> Figure:
    values, names = {"importance": np.array(list(found.importance.values()))}, short_names(found.importance)
    panel = Bars(
        [*names.values()],
        values,
        "share of the variance explained",
        limits=(0, 1),
        size=(SIZE[0], max(2.6, 1.2 + 0.3 * len(found.importance))),  # its label is long
    )
    words = "; ".join(f"{names[key]} {value:.0%}" for key, value in found.importance.items())
    note = f"The share of the variance of the ranks of all scores that a setting explains alone: {words}."
    return _figure("Importance of settings", panel, note)


def _parallel(found: SweepResults, running: SweepRun) -> Figure:
    ranked = [row for row in found.ranked if row["score"] is not None]
    low, high = _range(found)
    spaces = running.spaces

    def places(row: dict[str, Any]) -> list[float]:
        score = (row["score"] - low) / ((high - low) or 1)
        return [*(space.place(row["settings"][key]) for key, space in spaces.items()), min(max(score, 0.0), 1.0)]

    measure = found.measure
    ends = [f"{number(found, low)}", f"{number(found, high)}"]
    ends = [ends[0], f"≥ {ends[1]}"] if measure.lower_is_better else [f"≤ {ends[0]}", ends[1]]
    names = short_names(spaces)
    panel = Parallel(
        [f"trial {row['trial']}" for row in ranked],
        [*names.values(), measure.key],
        np.array([places(row) for row in ranked]),
        [*(_ticks(space) for space in spaces.values()), [(0.0, ends[0]), (1.0, ends[1])]],
    )
    best = ", ".join(f"{names[key]} {shown(value)}" for key, value in found.best["settings"].items())
    note = f"One line for each trial, from dark (best) to bright (worst); the three best are thick. The best: {best}."
    return _figure("Parallel coordinates", panel, note)


def _ticks(space: Space) -> list[tuple[float, str]]:
    """Labels of a few values of a space, evenly along its axis."""
    if isinstance(space, Interval):
        middle = (space.low * space.high) ** 0.5 if space.log else (space.low + space.high) / 2
        marks: list[Any] = [space.low, space.rounded(float(f"{middle:.2g}")), space.high]
    else:
        marks = [*space.ends()][:: -(-len(space.ends()) // TICKS)]
    return [(space.place(mark), _short(shown(mark))) for mark in marks]


def _short(text: str) -> str:
    return text if len(text) <= 14 else f"{text[:13]}…"


def _range(found: SweepResults) -> tuple[float, float]:
    """Of the scores that charts show: from the best to a percentile, as a few failures may lie far off."""
    scores = np.array([row["score"] for row in found.rows if row["score"] is not None], dtype=np.float64)
    scores = scores[np.isfinite(scores)]
    if found.measure.lower_is_better:
        return float(scores.min()), float(np.percentile(scores, SHOWN))
    return float(np.percentile(scores, 100 - SHOWN)), float(scores.max())


def _best(found: SweepResults, running: SweepRun) -> str:
    text = yaml.safe_dump(found.best["settings"], sort_keys=False, allow_unicode=True)
    words = f"The whole recipe is {running.folder / BEST}; elman train takes it."
    return f"<pre>{escape(text.strip())}</pre><p>{escape(words)}</p>"


def _trials(found: SweepResults, running: SweepRun) -> str:
    test = ["test"] if found.best.get("test") is not None else []
    heads = ["trial", *short_names(running.spaces).values(), found.measure.key, *test, "steps", "seconds", "outcome"]
    rows = []
    for row in found.ranked:
        scores = [row["score"], *([row.get("test")] if test else [])]
        cells = [str(row["trial"]), *(shown(row["settings"][key]) for key in running.spaces)]
        cells += ["–" if score is None else number(found, score) for score in scores]
        rows.append([*cells, f"{row.get('steps') or '–'}", short(row.get("seconds")), row["outcome"]])
    return table("From best to worst: complete trials, then pruned ones by their last score.", heads, rows)


def _method(running: SweepRun) -> str:
    sweep, ways = running.sweep, {
        "random": "random draws",
        "tpe": "the tree-structured Parzen estimator of Optuna, after ten random draws",
        "grid": "all combinations",
    }  # fmt: skip
    spaces = "; ".join(f"{key} {shown(value)}" for key, value in sweep.settings.items())
    pruned = {
        "none": "No trial was stopped early.",
        "median": "A trial ended where its best validation was above the median of earlier ones at equal updates.",
        "halving": "A trial ended where it was not among the best third of earlier ones after a ninth and a third "
        "of the training (successive halving).",
    }
    lines = [
        f"Search: {ways[sweep.search]} over {spaces}.",
        pruned[sweep.prune],
        f"A proposal uses the outcomes of all trials but the last {sweep.concurrent} before it, so that the same "
        f"random seed ({running.base.seed}) gives the same sweep on any number of workers.",
        "Each trial ran once: differences between the best ones may be chance. elman compare with several seeds tells.",
    ]
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
