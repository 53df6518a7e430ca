"""Helpers for matplotlib axes: tick labels of any script that fit, legends, log scales, colour bars."""

import textwrap
from typing import Any

from elman.figures.fonts import drawable, label
from elman.figures.palette import GREY, PALE

POINTS = 72  # in an inch
WIDE, WIDEST = 9.0, 16.0  # inches: of charts, and of heat maps at most
NARROW = 6.0  # inches; on narrower charts the legend is below
FINEST = 0.03  # inches of a cell at the least
SMALLEST, STEPS = 5.0, (1, 2, 5, 10, 20, 50, 100)  # points of a label; every how many are kept where they are smaller
READABLE, ASPECT = 8.0, 0.62  # points of a number at the least; width of a letter as a share of its height
LEVEL = 6.5  # points at which labels of an x axis are still shrunk rather than turned
MANY = 9  # series from which on the legend is beside the chart
MARKED = 25  # points of a line up to which each has a marker


def wrap(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(drawable(text), width))


def tick_labels(axis: Any, names: list[str] | Any, cell: float) -> None:
    """Labels at 0, 1, 2, …, `cell` inches apart: smaller, turned or thinned out until they can be read."""
    labels = [label(name) for name in names]
    size = min(9.0, 0.72 * POINTS * cell)
    if axis.axis_name == "x" and cell * POINTS >= LEVEL * ASPECT * max(map(len, labels), default=1):
        size = min(size, cell * POINTS / (ASPECT * max(map(len, labels), default=1)))  # a little smaller, but level
    least = READABLE if all(name.isdigit() for name in labels) else SMALLEST  # a skipped number is no loss
    every = next(step for step in STEPS if step * size >= least or step == STEPS[-1])
    shown, size = labels[::every], max(size, least)
    axis.set_ticks(range(0, len(labels), every), shown, fontsize=size, parse_math=False)
    if axis.axis_name == "x":
        long = [len(name) * ASPECT * size > every * cell * POINTS for name in shown]
        most = sum(long) > len(long) / 5
        for text, turned in zip(axis.get_ticklabels(), long, strict=True):
            text.set_rotation(90 if turned or most else 0)


def log_scale(axis: Any, values: list[float], at_values: bool = False) -> None:
    """A log scale with plain numbers: at the values if these are few and wanted, else at 1, 2, 5 or powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    places = sorted(set(values))
    if at_values and 1 < len(places) <= MARKED // 2:
        axis.set_ticks(places, [f"{place:g}" for place in places])
        axis.set_ticks([], minor=True)
    elif places and places[0] > 0 and places[-1] / places[0] < 1e4:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if places[-1] / places[0] < 100 else (1,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def reference_line(axes: Any, text: str, value: float, dash: Any = (0, (4, 2))) -> None:
    """A horizontal line with its label above, at the left."""
    axes.axhline(value, color=GREY, ls=dash, lw=1, zorder=0)
    place: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "xytext": (2, 2), "textcoords": "offset points"}
    axes.annotate(drawable(text), (0, value), color=GREY, fontsize="small", va="bottom", parse_math=False, **place)


def finish_chart(axes: Any, x_label: str, y_label: str, grid: str = "both") -> None:
    """Labels of both axes, a pale grid, and no frame at the top and right."""
    axes.set_xlabel(drawable(x_label), parse_math=False)
    axes.set_ylabel(wrap(y_label, 32), parse_math=False)
    axes.grid(axis=grid, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def legend(part: Any, axes: Any, width: float) -> None:
    """Under narrow charts, beside charts of many series, else above the chart."""
    count = len(axes.get_legend_handles_labels()[0])
    kwargs: dict[str, Any] = {"frameon": False, "fontsize": "small"}
    if width < NARROW:
        found = part.legend(loc="outside lower center", ncols=3, handlelength=2.2, columnspacing=1, **kwargs)
    elif count >= MANY:
        found = part.legend(loc="outside right upper", **kwargs)
    else:
        found = axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.1, **kwargs)
    for text in found.get_texts():
        text.set_parse_math(False)


def colour_bar(part: Any, image: Any, axes: Any, text: str, **kwargs: Any) -> None:
    bar = part.colorbar(image, ax=axes, **kwargs)
    bar.outline.set_edgecolor(PALE)
    bar.ax.tick_params(labelsize=7)
    bar.set_label(wrap(text, 16), fontsize=7, rotation=0, ha="left", va="center")
