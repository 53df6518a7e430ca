"""Drawing with matplotlib, for SVG and PNG: whole figures, and helpers for the axes of their panels.

Tick labels may be of any script, and are shrunk, turned or thinned out until they fit.
"""

import io
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from elman.figures.colours import GREY, PALE
from elman.figures.fonts import drawable, families, label

if TYPE_CHECKING:
    from elman.figures.figure import Figure

POINTS = 72  # in an inch
WIDE, WIDEST = 9.0, 16.0  # inches: of charts, and of heat maps at most
NARROW = 6.0  # inches; on narrower charts the legend is below
FINEST = 0.03  # inches of a cell at the least
SMALLEST, STEPS = 5.0, (1, 2, 5, 10, 20, 50, 100)  # points of a label; every how many are kept where they are smaller
READABLE, ASPECT = 8.0, 0.62  # points of a number at the least; width of a letter as a share of its height
LEVEL = 6.5  # points at which labels of an x axis are still shrunk rather than turned
MANY = 9  # series from which on the legend is beside the chart
MARKED = 25  # points of a line up to which each has a marker


def render(figure: "Figure", suffixes: Sequence[str]) -> list[bytes]:
    """As `svg` and `png`, arranged once for all of these: the same figure gives the same bytes."""
    import matplotlib

    about = {"Title": figure.title, "Description": " ".join([figure.subtitle, figure.command]).strip()}
    with drawing_style(figure):
        whole = canvas(figure)
        whole.get_layout_engine().execute(whole)
        whole.set_layout_engine("none")  # or each format would be arranged anew
        edges = whole.get_tightbbox().padded(matplotlib.rcParams["savefig.pad_inches"])
        return [_saved(whole, suffix, about, edges) for suffix in suffixes]


def _saved(whole: Any, suffix: str, about: dict[str, str], edges: Any) -> bytes:
    out = io.BytesIO()
    undated = {"Date": None} if suffix == "svg" else {}
    whole.savefig(out, format=suffix, dpi=150, metadata=about | undated, bbox_inches=edges)
    return out.getvalue()


def drawing_style(figure: "Figure") -> AbstractContextManager[None]:
    """The settings of matplotlib under which a figure is drawn: fonts for the scripts of all its texts."""
    import matplotlib

    texts = [figure.title, figure.subtitle, figure.command, *figure.notes]
    texts += [text for panel in figure.panels for text in (panel.title, *panel.texts())]
    settings: Any = {"font.family": families(map(drawable, texts)), "svg.hashsalt": "elman"}
    return matplotlib.rc_context(settings)


def canvas(figure: "Figure") -> Any:
    """A matplotlib figure: title, panels with their titles, then notes and command in small print."""
    from matplotlib.figure import Figure as Canvas  # imported late, as it is slow; no global backend is touched

    sizes = [panel.size or panel.inches() for panel in figure.panels]
    width = max(wide for wide, _ in sizes)
    sentences = filter(None, [figure.subtitle, *figure.notes, figure.prompt])
    foot = [line for sentence in sentences for line in textwrap.wrap(drawable(sentence), int(width * 13))]
    heights = [height for _, height in sizes] + ([0.2 * len(foot) + 0.1] if foot else [])
    whole = Canvas(figsize=(width, sum(heights) + (0.4 if figure.title else 0.0)), layout="constrained")
    text: dict[str, Any] = {"x": 0.01, "ha": "left", "parse_math": False}
    if figure.title:
        whole.suptitle(drawable(figure.title), **text)
    parts = whole.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, panel in zip(parts, figure.panels, strict=False):
        panel.draw(part, figure.styles)
        if panel.title:
            part.suptitle(drawable(panel.title), fontsize="medium", **text)
    if foot:
        small: dict[str, Any] = {"va": "top", "fontsize": 8, "color": "#444444", "parse_math": False}
        parts[-1].text(0.01, 0.95, "\n".join(foot), **small)
    return whole


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
