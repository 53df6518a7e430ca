"""The race in pictures: quality against cost, learning curves, right forms by distance, loss by place and frequency.

As narrow as a telephone, so that letters stay readable there; every colour comes with a mark and a dash of its own.
"""

import math
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from elman.comparison.results import Found, curve
from elman.comparison.verdict import number

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#A50026", "#000000", "#7F3C8D")
MARKS, DASHES = "osD^vPX*", ("-", "--", "-.", ":")
GREY = "#595959"
SIZE = (4.8, 3.7)
CASES = 30  # words from which on a share of them is shown
LETTERS = 36  # that find room below an axis
BY_CLASS = {"accuracy": "right (%)", "loss": "loss (nats per token)", "mse": "mean squared error"}
STEPS = 9  # on a staircase; the labels of more run into each other
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


class Picture(NamedTuple):
    """A drawing for the page, and what it shows in words."""

    name: str
    title: str
    svg: str
    alt: str


def draw_all(
    found: Found, jobs: dict[str, list[Any]], folder: Path, unit: str = "tokens", command: str = ""
) -> list[Picture]:
    """Every picture there is data for; also as files, which name the command. `unit` is what training is counted in."""
    ranked = [row for row in found.rows if row["place"] is not None]
    looks = {row["entrant"]: place for place, row in enumerate(sorted(ranked, key=lambda row: row["entrant"]))}
    drawings: list[tuple[str, str, Callable[[Any], str]]] = [
        ("cost", "Quality against training time", lambda axes: _cost(axes, found, ranked, looks)),
        ("curves", "Learning curves", lambda axes: _curves(axes, ranked, jobs, looks, unit)),
        ("staircase", "Right forms by distance", lambda axes: _staircase(axes, ranked, looks)),
        ("position", "Loss by position", lambda axes: _positions(axes, ranked, looks)),
        ("frequency", "By frequency of the word", lambda axes: _frequencies(axes, ranked, looks)),
        ("length", "By length of the example", lambda axes: _lengths(axes, ranked, looks)),
    ]
    pictures = [_drawn(name, title, draw, folder, command) for name, title, draw in drawings]
    return [picture for picture in pictures if picture is not None]


def _drawn(name: str, title: str, draw: Callable[[Any], str], folder: Path, command: str) -> Picture | None:
    from matplotlib import rc_context  # heavy: only when drawn
    from matplotlib.figure import Figure

    with rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        alt = draw(axes)
        if not alt:
            return None
        axes.grid(alpha=0.25)
        if len(axes.get_legend_handles_labels()[0]):
            figure.legend(
                loc="outside lower center", ncols=3, frameon=False, fontsize=9, handlelength=2.2, columnspacing=1
            )
        folder.mkdir(parents=True, exist_ok=True)
        memory = StringIO()
        about = {"Title": title, "Description": command}
        figure.savefig(memory, format="svg", metadata={"Date": None, "Creator": None, **about})
        (folder / f"{name}.svg").write_text(memory.getvalue())
        figure.savefig(folder / f"{name}.png", dpi=150, metadata=about)
    return Picture(name, title, memory.getvalue(), alt)


def _look(place: int) -> dict[str, Any]:
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKS[place % len(MARKS)],
        "ls": DASHES[(place // len(COLOURS) + place) % len(DASHES)],
        "lw": 1.6,
        "ms": 4.5,
    }


def _cost(axes: Any, found: Found, rows: Sequence[dict[str, Any]], looks: dict[str, int]) -> str:
    points = [row for row in rows if row.get("training_seconds") and math.isfinite(row["score"])]
    if not points:
        return ""
    best: Any = points[0].get("best_possible")
    above = bool(best) and all(min(row["interval"] or [row["score"]]) > best for row in points)

    share = found.measure.percent

    def height(value: float) -> float:
        """On a language whose best is known the distance to it, in percent: else all good ones would be one point."""
        return 100 * (value - best) / best if above else 100 * value if share else value

    for row in points:
        low, high = (height(edge) for edge in row["interval"] or (row["score"], row["score"]))
        look = _look(looks[row["entrant"]]) | {"ls": "none", "ms": 7}
        y = height(row["score"])
        error = [[max(0.0, y - low)], [max(0.0, high - y)]]
        axes.errorbar(row["training_seconds"], y, yerr=error, capsize=3, label=row["entrant"], **look)
    sign = 1 if found.measure.lower_is_better else -1
    front: list[dict[str, Any]] = []
    for row in sorted(points, key=lambda row: row["training_seconds"]):
        if not front or sign * row["score"] < sign * front[-1]["score"]:
            front.append(row)
    xs = [row["training_seconds"] for row in front]
    axes.plot(xs, [height(row["score"]) for row in front], color=GREY, lw=1, ls=":", zorder=0)
    times = [row["training_seconds"] for row in points]
    if max(times) > 8 * min(times):
        _logarithmic(axes.xaxis, max(times) / min(times))
    better = "lower" if found.measure.lower_is_better else "higher"
    axes.set(xlabel="seconds of training", ylabel=f"{'% ' * share}{found.measure.words} ({better} is better)")
    if above:
        heights = [height(row["score"]) for row in points]
        if max(heights) > 4 * min(heights):
            _logarithmic(axes.yaxis, max(heights) / min(heights))
        axes.set_ylabel("loss above the best possible (%)")
    told = "; ".join(
        f"{row['entrant']} {number(found, row['score'])} in {row['training_seconds']:.3g} s" for row in points
    )
    return f"{told}. Nobody is both better and faster than {', '.join(row['entrant'] for row in front)}."


def _logarithmic(axis: Any, ratio: float) -> None:
    """Numbers as they are written, and only as many as have room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if ratio < 100 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _curves(
    axes: Any, rows: Sequence[dict[str, Any]], jobs: dict[str, list[Any]], looks: dict[str, int], unit: str
) -> str:
    ends, settled = {}, []
    for row in rows:
        name = row["entrant"]
        seeds = [points for job in jobs[name] if (points := curve(job))]
        if not seeds:
            continue
        look = _look(looks[name])
        if row["exact"]:
            axes.axhline(seeds[0][-1][1], label=name, color=look["color"], ls=look["ls"], lw=1.6)
            ends[name] = seeds[0][-1][1]
            settled.append(ends[name])
            continue
        length = min(len(points) for points in seeds)
        tokens = [seeds[0][place][0] for place in range(length)]
        losses = [[points[place][1] for points in seeds] for place in range(length)]
        means = [sum(one) / len(one) for one in losses]
        axes.fill_between(tokens, [min(one) for one in losses], [max(one) for one in losses],
                          color=look["color"], alpha=0.18, lw=0)  # fmt: skip
        axes.plot(tokens, means, label=name, **look)
        ends[name] = means[-1]
        settled += means[1:] or means
    if not ends:
        return ""
    from matplotlib.ticker import EngFormatter

    low, high = min(settled), max(settled)
    bound = next((row["best_possible"] for row in rows if row.get("best_possible")), None)
    if bound is not None:
        low = min(low, bound)
        axes.axhline(bound, color=GREY, lw=1, ls=(0, (1, 2)))
        axes.text(
            0.01, bound, "best possible", transform=axes.get_yaxis_transform(), va="bottom", color=GREY, fontsize=9
        )
    axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set(xlabel=f"training {unit}", ylabel="validation loss (nats)")
    told = ", ".join(f"{name} {loss:.3f}" for name, loss in sorted(ends.items(), key=lambda item: item[1]))
    return f"Validation loss against training {unit}; the band spans the seeds. At the end: {told}."


def _staircase(axes: Any, rows: Sequence[dict[str, Any]], looks: dict[str, int]) -> str:
    told = []
    labels: list[str] = []
    for row in rows:
        steps = merged(row.get("staircase") or [])
        if not steps:
            continue
        labels = [step["label"] for step in steps]
        places, look = range(len(steps)), _look(looks[row["entrant"]])
        axes.fill_between(places, [100 * step["least"] for step in steps], [100 * step["most"] for step in steps],
                          color=look["color"], alpha=0.15, lw=0)  # fmt: skip
        axes.plot(places, [100 * step["accuracy"] for step in steps], label=row["entrant"], **look)
        told.append(f"{row['entrant']} {steps[0]['accuracy']:.0%} next to it and {steps[-1]['accuracy']:.0%} farthest")
    if not labels:
        return ""
    axes.axhline(50, color=GREY, lw=1, ls=(0, (1, 2)))
    axes.text(0, 50.5, "guessing", color=GREY, va="bottom", fontsize=9)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylim(min(38, *axes.get_ylim()), 103)
    axes.set(xlabel="words between the verb and what decides it", ylabel="right forms (%)")
    return f"Share of right verb forms: {'; '.join(told)} ({labels[-1]} words)."


def merged(steps: Sequence[dict[str, Any]], cases: int = CASES) -> list[dict[str, Any]]:
    """Neighbouring distances put together until each step stands on enough words, and their labels find room."""
    result: list[dict[str, Any]] = []
    group: list[dict[str, Any]] = []
    for step in steps:
        group.append(step)
        if sum(one["words"] for one in group) >= cases:
            result.append(_together(group))
            group = []
    if group and result:
        last = [*result.pop()["of"], *group]
        result.append(_together(last))
    return result if len(result) <= STEPS else merged(steps, round(1.3 * cases))


def _together(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    words = sum(one["words"] for one in group)
    first, last = group[0]["value"], group[-1]["value"]
    means = {key: sum(one[key] * one["words"] for one in group) / words for key in ("accuracy", "least", "most")}
    return {"label": str(first) if first == last else f"{first}–{last}", "words": words, "of": list(group), **means}


def _positions(axes: Any, rows: Sequence[dict[str, Any]], looks: dict[str, int]) -> str:
    spans: list[Any] = next((row["by_position"] for row in rows if row.get("by_position")), [])
    labels = [f"{span['start']}–{span['end']}" if span["end"] > span["start"] else str(span["start"]) for span in spans]
    return _by(axes, rows, looks, "by_position", labels, "position of the token")


def _frequencies(axes: Any, rows: Sequence[dict[str, Any]], looks: dict[str, int]) -> str:
    bins: list[Any] = next((row["by_frequency"] for row in rows if row.get("by_frequency")), [])
    names = {0: "never", 1: "<10", 10: "<100", 100: "<1k", 1000: "<10k", 10_000: "<100k", 100_000: "more"}
    return _by(axes, rows, looks, "by_frequency", [names[one["from"]] for one in bins], "times seen in training")


def _lengths(axes: Any, rows: Sequence[dict[str, Any]], looks: dict[str, int]) -> str:
    bins: list[Any] = next((row["by_length"] for row in rows if row.get("by_length")), [])
    labels = [f"{one['from']}–{one['to']}" if one["to"] > one["from"] else str(one["from"]) for one in bins]
    return _by(axes, rows, looks, "by_length", labels, "length of the example")


def _by(
    axes: Any, rows: Sequence[dict[str, Any]], looks: dict[str, int], key: str, labels: list[str], what: str
) -> str:
    """Loss, or what is right in percent, in a few classes, a line for each entrant."""
    if len(labels) < 2:
        return ""
    told = []
    value = next((name for row in rows for one in row.get(key) or [] for name in one if name in BY_CLASS), "loss")
    shares = value == "accuracy"
    for row in rows:
        values = [100 * one[value] if shares else one[value] for one in row.get(key) or []]
        if len(values) == len(labels):
            axes.plot(range(len(labels)), values, label=row["entrant"], **_look(looks[row["entrant"]]))
            told.append(f"{row['entrant']} from {values[0]:.3g} to {values[-1]:.3g}")
    places = range(0, len(labels), 1 + sum(map(len, labels)) // LETTERS)
    axes.set_xticks(places, [labels[place] for place in places])
    axes.set(xlabel=what, ylabel=BY_CLASS[value])
    whole = "What is right, in percent," if shares else "Loss" if value == "loss" else "Mean squared error"
    return f"{whole} by {what}, from {labels[0]} to {labels[-1]}: {'; '.join(told)}." if told else ""
