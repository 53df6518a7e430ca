"""Figures of a race: score against training time, learning curves, agreement accuracy by distance, loss breakdowns.

They are as narrow as a phone, so that their text stays readable there. An entrant has one colour in all of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from elman.comparison.results import RaceResults, curve
from elman.comparison.verdict import number
from elman.figures.figure import Figure, share_palette
from elman.figures.panels import Array, Lines, Panel, Scatter
from elman.figures.panels.scatter import Point

SIZE = (4.8, 3.7)  # inches
CASES = 30  # words from which on their accuracy is shown
STEPS = 9  # distances in a chart at most: the labels of more would overlap
LOG_RATIO = 8  # of the longest to the shortest training, from which on time has a log axis
CLASS_SCORES = {"accuracy": "accuracy (%)", "loss": "loss (nats per token)", "mse": "mean squared error"}
FREQUENCIES = {0: "never", 1: "<10", 10: "<100", 100: "<1k", 1000: "<10k", 10_000: "<100k", 100_000: "more"}

Row = dict[str, Any]


def race_figures(
    found: RaceResults, jobs: dict[str, list[Any]], unit: str = "tokens", command: str = ""
) -> dict[str, Figure]:
    """By name, those that there is data for. `unit` is what the training budget counts."""
    rows = found.ranked
    figures = {
        "cost": _cost(found, rows),
        "curves": _learning_curves(rows, jobs, unit),
        "staircase": _accuracy_by_distance(rows),
        **{name: _breakdown(rows, f"by_{name}", *about) for name, about in BREAKDOWNS.items()},
    }
    known = {name: replace(figure, command=command) for name, figure in figures.items() if figure is not None}
    shared = share_palette(known.values(), sorted(row["entrant"] for row in rows))
    return dict(zip(known, shared, strict=True))


def _figure(title: str, panel: Panel, note: str) -> Figure:
    return Figure(title, [replace(panel, size=SIZE)], [note])


def _cost(found: RaceResults, rows: Sequence[Row]) -> Figure | None:
    """Score against training time, with the Pareto front; loss above the entropy in percent where that is known."""
    known = [row for row in rows if row.get("training_seconds") and math.isfinite(row["score"])]
    if not known:
        return None
    bound: Any = known[0].get("best_possible")
    excess = bool(bound) and all(min(row["interval"] or [row["score"]]) > bound for row in known)
    share = found.measure.percent

    def y(score: float) -> float:
        return 100 * (score - bound) / bound if excess else 100 * score if share else score

    heights = {row["entrant"]: map(y, (row["score"], *(row["interval"] or [row["score"]] * 2))) for row in known}
    points = {row["entrant"]: Point(row["training_seconds"], *heights[row["entrant"]]) for row in known}
    sign = 1 if found.measure.lower_is_better else -1
    front: list[Row] = []
    for row in sorted(known, key=lambda row: row["training_seconds"]):
        if not front or sign * row["score"] < sign * front[-1]["score"]:
            front.append(row)
    names = [row["entrant"] for row in front]
    times, levels = [point.x for point in points.values()], [point.y for point in points.values()]
    log_axes = "x" if max(times) > LOG_RATIO * min(times) else ""
    log_axes += "y" if excess and max(levels) > 4 * min(levels) else ""
    better = "lower" if found.measure.lower_is_better else "higher"
    y_label = f"{'% ' * share}{found.measure.words} ({better} is better)"
    y_label = "loss above the entropy (%)" if excess else y_label
    panel = Scatter(points, "training time (s)", y_label, log_axes, front=names)
    scores = "; ".join(
        f"{row['entrant']} {number(found, row['score'])} in {row['training_seconds']:.3g} s" for row in known
    )
    return _figure("Quality against training time", panel, f"{scores}. Pareto front (dotted): {', '.join(names)}.")


def _learning_curves(rows: Sequence[Row], jobs: dict[str, list[Any]], unit: str) -> Figure | None:
    """Validation loss: mean over seeds, with a band from the lowest to the highest."""
    lines: dict[str, tuple[Array, Array]] = {}
    bands: dict[str, tuple[Array, Array]] = {}
    counted: dict[str, float] = {}
    settled: list[float] = []
    for row in rows:
        name, seeds = row["entrant"], [points for job in jobs[row["entrant"]] if (points := curve(job))]
        if seeds and row["exact"]:
            counted[name] = seeds[0][-1][1]
        elif seeds:
            length = min(len(points) for points in seeds)
            losses = np.array([[point[1] for point in points[:length]] for points in seeds])
            lines[name] = np.array([point[0] for point in seeds[0][:length]]), losses.mean(0)
            bands[name] = losses.min(0), losses.max(0)
            settled += lines[name][1][min(1, length - 1) :].tolist()
    if not lines and not counted:
        return None
    last = max((float(xs[-1]) for xs, _ in lines.values()), default=1.0)
    lines |= {name: (np.array([0.0, last]), np.array([loss, loss])) for name, loss in counted.items()}
    settled += counted.values()
    bound = next((row["best_possible"] for row in rows if row.get("best_possible")), None)
    low, high = min([*settled, *([] if bound is None else [bound])]), max(settled)
    margin = 0.06 * (high - low)
    panel = Lines(
        lines,
        f"training {unit}",
        "validation loss (nats)",
        limits=(low - margin, high + margin) if margin else None,
        bands=bands,
        references={} if bound is None else {"entropy of the language": bound},
    )
    ends = sorted(((float(ys[-1]), name) for name, (_, ys) in lines.items()))
    final = ", ".join(f"{name} {loss:.3f}" for loss, name in ends)
    note = f"Validation loss against training {unit}; bands span the seeds. At the end: {final}."
    return _figure("Learning curves", panel, note)


def _accuracy_by_distance(rows: Sequence[Row]) -> Figure | None:
    """Agreement accuracy by the number of words between subject and verb."""
    by_entrant = {row["entrant"]: steps for row in rows if (steps := merge_steps(row.get("staircase") or []))}
    if not by_entrant:
        return None
    labels = [step["label"] for step in list(by_entrant.values())[-1]]

    def percent(steps: Sequence[Row], key: str) -> Array:
        return np.array([100 * step[key] for step in steps])

    lines = {name: (np.arange(len(steps)), percent(steps, "accuracy")) for name, steps in by_entrant.items()}
    bands = {name: (percent(steps, "least"), percent(steps, "most")) for name, steps in by_entrant.items()}
    lowest = min(float(low.min()) for low, _ in bands.values())
    panel = Lines(
        lines,
        "words between subject and verb",
        "correct verb forms (%)",
        ticks=labels,
        limits=(min(38, lowest - 3), 103),
        bands=bands,
        references={"chance": 50},
    )
    shares = "; ".join(
        f"{name} {steps[0]['accuracy']:.0%} nearest and {steps[-1]['accuracy']:.0%} farthest"
        for name, steps in by_entrant.items()
    )
    note = f"Agreement accuracy by distance: {shares} ({labels[-1]} words)."
    return _figure("Agreement accuracy by distance", panel, note)


def merge_steps(steps: Sequence[Row], cases: int = CASES) -> list[Row]:
    """Neighbouring distances are pooled until each has enough words, and until their labels fit."""
    result: list[Row] = []
    group: list[Row] = []
    for step in steps:
        group.append(step)
        if sum(one["words"] for one in group) >= cases:
            result.append(_pooled(group))
            group = []
    if group and result:
        last = [*result.pop()["of"], *group]
        result.append(_pooled(last))
    return result if len(result) <= STEPS else merge_steps(steps, round(1.3 * cases))


def _pooled(group: Sequence[Row]) -> Row:
    words = sum(one["words"] for one in group)
    means = {key: sum(one[key] * one["words"] for one in group) / words for key in ("accuracy", "least", "most")}
    return {"label": _span(group[0]["value"], group[-1]["value"]), "words": words, "of": list(group), **means}


def _span(first: int, last: int) -> str:
    return f"{first}–{last}" if last > first else str(first)


# By class of tokens or examples: a title, what the classes are of, and the label of one
BREAKDOWNS: dict[str, tuple[str, str, Callable[[Row], str]]] = {
    "position": ("Loss by position", "position of the token", lambda one: _span(one["start"], one["end"])),
    "frequency": (
        "By frequency of the word", "occurrences in the training text", lambda one: FREQUENCIES[one["from"]],
    ),
    "length": ("By length of the example", "length of the example", lambda one: _span(one["from"], one["to"])),
}  # fmt: skip


def _breakdown(rows: Sequence[Row], key: str, title: str, x_label: str, label: Callable[[Row], str]) -> Figure | None:
    """Loss, mean squared error, or accuracy in percent, of a few classes of tokens or examples."""
    classes: list[Row] = next((row[key] for row in rows if row.get(key)), [])
    if len(classes) < 2:
        return None
    labels = [label(one) for one in classes]
    score = next((name for name in CLASS_SCORES if name in classes[0]), "loss")
    factor = 100 if score == "accuracy" else 1
    lines = {
        row["entrant"]: np.array([factor * one[score] for one in row[key]])
        for row in rows
        if len(row.get(key) or []) == len(labels)
    }
    name, points = CLASS_SCORES[score], {one: (np.arange(len(labels)), values) for one, values in lines.items()}
    panel = Lines(points, x_label, name, ticks=labels)
    ends = "; ".join(f"{one} from {values[0]:.3g} to {values[-1]:.3g}" for one, values in lines.items())
    note = f"{name[0].upper()}{name[1:]} by {x_label}, from {labels[0]} to {labels[-1]}: {ends}."
    return _figure(title, panel, note)
