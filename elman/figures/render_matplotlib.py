"""Pictures drawn with matplotlib, for SVG and PNG: labels of any script that fit, colours for all eyes."""

import io
import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from elman.figures.fonts import drawable, families, label
from elman.figures.panels import Bars, ColouredText, HeatMap, Lines, Panel, Ribbons
from elman.figures.scales import BLUE, CENTRED, GREY, MARKERS, ORANGE, PALE, SERIES, STROKES, Scale

if TYPE_CHECKING:
    from elman.figures.figure import Figure

POINTS = 72  # in an inch
CELL, FINEST, LINED = 0.27, 0.03, 0.12  # inches: a cell at its largest, at its smallest, and the least to have lines
WIDEST, TALLEST, UNITS = 16.0, 16.0, 2.2  # inches for all cells of tokens; for all units of a layer
ABREAST = 4  # maps in a row
SMALLEST, STEPS = 5.0, (1, 2, 5, 10, 20, 50, 100)  # points of a label, and which labels are left where they are smaller
READABLE, SLIM = 8.0, 0.62  # points of a number; width of a letter as a share of its height
WIDE = 9.0  # inches of a picture without maps
LINE = 84  # signs in a line of coloured text
HATCHES = ("", "///", "...", "xxx")
LONG = 16  # signs of a name that is better read beside its bar than under it
MANY = 9  # curves that a legend beside the chart is better for
FEW = 25  # points up to which each has a mark


def draw(figure: "Figure", kind: str) -> bytes:
    """`svg` or `png`."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas  # heavy: only when drawn, and without any global backend

    out = io.BytesIO()
    title = drawable(figure.title)
    fonts = families([title, *map(drawable, _words(figure))])
    with matplotlib.rc_context({"font.family": fonts, "svg.hashsalt": "elman"}):  # the same picture is the same file
        sizes = [_size(panel) for panel in figure.panels]
        wide = max([width for width, _ in sizes])
        foot = _foot(figure, wide)
        heights = [height for _, height in sizes] + ([0.2 * len(foot) + 0.1] if foot else [])
        canvas = Canvas(figsize=(wide, sum(heights) + (0.4 if title else 0.0)), layout="constrained")
        if title:
            canvas.suptitle(title, x=0.01, ha="left", parse_math=False)
        parts = canvas.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, panel in zip(parts, figure.panels, strict=False):
            _draw(part, panel)
        if foot:
            parts[-1].text(0.01, 0.95, "\n".join(foot), va="top", fontsize=8, color="#444444", parse_math=False)
        about: dict[str, str | None] = {
            "Title": figure.title,
            "Description": " ".join([figure.of, figure.command]).strip(),
        }
        about |= {"Date": None} if kind == "svg" else {}
        canvas.savefig(out, format=kind, dpi=150, metadata=about, bbox_inches="tight")
    return out.getvalue()


def _draw(part: Any, panel: Panel) -> None:
    if isinstance(panel, HeatMap):
        _heat(part, panel)
    elif isinstance(panel, Lines):
        _lines(part, panel)
    elif isinstance(panel, Bars):
        _bars(part, panel)
    elif isinstance(panel, Ribbons):
        _ribbons(part, panel)
    else:
        assert isinstance(panel, ColouredText)
        _coloured(part, panel)


def colours(scale: Scale) -> Any:
    """From 0, the low end, to 1."""
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    if scale.centred:
        return LinearSegmentedColormap.from_list(scale.colours, CENTRED)
    return matplotlib.colormaps[scale.colours]


def _words(figure: "Figure") -> Iterator[str]:
    """All that will be written, so that fonts can be found."""
    yield from (figure.of, figure.command, *figure.notes)
    for panel in figure.panels:
        yield panel.title
        if isinstance(panel, HeatMap):
            yield from (*map(label, panel.rows), *map(label, panel.columns), *panel.maps)
        elif isinstance(panel, Lines):
            yield from (*map(label, panel.ticks), *panel.lines)
        elif isinstance(panel, Bars):
            yield from (*map(label, panel.names), *panel.series)
        elif isinstance(panel, Ribbons):
            yield from (*panel.names, *map(label, panel.tokens))
        elif isinstance(panel, ColouredText):
            yield from (*map(label, panel.tokens), *map(label, panel.under))


def _foot(figure: "Figure", wide: float) -> list[str]:
    sentences = [figure.of, *figure.notes, figure.made_by]
    return [line for sentence in sentences if sentence for line in textwrap.wrap(drawable(sentence), int(wide * 13))]


def _size(panel: Panel) -> tuple[float, float]:
    """Inches: wide and high."""
    if isinstance(panel, HeatMap):
        wide, high = _cells(panel)
        across = min(len(panel.maps), ABREAST)
        down = -(-len(panel.maps) // across)
        everything = max(across * wide * len(panel.columns), 2.5), max(down * high * len(panel.rows), 1.5)
        return everything[0] + 2 + 0.3 * across, everything[1] + 0.8 + 0.5 * down
    if isinstance(panel, ColouredText):
        return WIDE, 0.5 + (0.5 if panel.under else 0.3) * (1 + max((line for line, *_ in _laid(panel)), default=0))
    if isinstance(panel, Ribbons):
        return max(4.0, 1.8 + _pitch(panel) * len(panel.tokens)), 1.2 + 0.42 * len(panel.names)
    if isinstance(panel, Bars):
        return WIDE, 0.9 + 0.2 * len(panel.names) * (1 + len(panel.series)) / 2 if _lying(panel) else 2.6
    return WIDE, 4.2 if not isinstance(panel, Lines) or len(panel.lines) > 3 else 3.0


def _cells(panel: HeatMap) -> tuple[float, float]:
    """Inches of a cell: square where both sides are tokens; units of a layer take less."""
    across = min(len(panel.maps), ABREAST)
    cell = max(min(CELL, WIDEST / (across * len(panel.columns)), TALLEST / len(panel.rows)), FINEST)
    if panel.time == "rows":
        return cell, cell
    wide = max(min(CELL * 1.2, WIDEST / (across * len(panel.columns))), FINEST)
    return wide, max(min(CELL * 0.7, UNITS / len(panel.rows)), 0.004)


def _heat(part: Any, panel: HeatMap) -> None:
    rows, columns = [label(name) for name in panel.rows], [label(name) for name in panel.columns]
    (wide, high), many = _cells(panel), len(panel.maps)
    across = min(many, ABREAST)
    down = -(-many // across)
    low, top = panel.scale.limits(panel.maps.values())
    shades = colours(panel.scale).with_extremes(bad=PALE)
    panels = part.subplots(down, across, sharey=True, squeeze=False)
    beyond: set[str] = set()
    for axes, (name, matrix) in zip(panels.flat, panel.maps.items(), strict=False):
        aspect = "equal" if panel.time == "rows" else "auto"  # maps over the same tokens fill one width
        image = axes.imshow(matrix, cmap=shades, vmin=low, vmax=top, aspect=aspect, interpolation="nearest")
        beyond |= {"min"} if np.nanmin(matrix) < low - 1e-6 else set()
        beyond |= {"max"} if np.nanmax(matrix) > top + 1e-6 else set()
        axes.xaxis.tick_top()
        _name(axes.xaxis, columns, wide)
        _name(axes.yaxis, rows, high)
        axes.tick_params(length=0)
        axes.spines[:].set_color(PALE)
        if min(wide, high) >= LINED:
            lines: Any = {"color": PALE, "lw": 0.5}
            axes.vlines([place + 0.5 for place in range(len(columns) - 1)], -0.5, len(rows) - 0.5, **lines)
            axes.hlines([place + 0.5 for place in range(len(rows) - 1)], -0.5, len(columns) - 0.5, **lines)
        if name:
            axes.set_xlabel(drawable(name), parse_math=False)
        if panel.row_axis:
            axes.set_ylabel(panel.row_axis)
    for axes in panels.flat[many:]:
        axes.set_visible(False)
    ends = {0: "neither", 2: "both"}.get(len(beyond), next(iter(beyond), "neither"))
    tall = down * high * len(rows)
    shrink = min(1.0, 2.5 / tall) if tall > 1.2 else 1.0
    bar = part.colorbar(image, ax=panels, fraction=0.03, shrink=shrink, aspect=15, extend=ends)
    bar.outline.set_edgecolor(PALE)
    bar.set_label("\n".join(textwrap.wrap(panel.scale.label, 24)))
    _head(part, panel)


def _name(axis: Any, labels: list[str], cell: float) -> None:
    """Labels that fit: smaller where cells are, and only every second or fifth where they would be too small."""
    size = min(9.0, 0.72 * POINTS * cell)
    least = READABLE if all(name.isdigit() for name in labels) else SMALLEST  # no word is lost with a number
    every = next(step for step in STEPS if step * size >= least or step == STEPS[-1])
    shown, size = labels[::every], max(size, least)
    axis.set_ticks(range(0, len(labels), every), shown, fontsize=size, parse_math=False)
    if axis.axis_name == "x":
        long = [len(name) * SLIM * size > every * cell * POINTS for name in shown]
        words = sum(long) > len(long) / 5
        for text, turned in zip(axis.get_ticklabels(), long, strict=True):
            text.set_rotation(90 if turned or words else 0)


def _lines(part: Any, panel: Lines) -> None:
    axes = part.subplots()
    if panel.shaded:
        axes.axvspan(*panel.shaded, color="#000000", alpha=0.06, lw=0, label=panel.shade_name or None)
    for number, (name, (given, values)) in enumerate(panel.lines.items()):
        xs, ys = np.asarray(given, dtype=np.float64), np.asarray(values, dtype=np.float64)
        ys = ys if panel.floor is None else np.maximum(ys, panel.floor)
        axes.plot(
            *(xs, ys),
            color=SERIES[number % len(SERIES)],
            ls=STROKES[(number + number // len(SERIES)) % len(STROKES)],
            marker=MARKERS[number % len(MARKERS)] if len(xs) <= FEW else None,
            ms=4,
            lw=1.5,
            label=drawable(name),
        )
    if "x" in panel.logarithmic:
        axes.set_xscale("log")
        places = sorted({float(x) for xs, _ in panel.lines.values() for x in xs})
        if len(places) <= FEW // 2:  # few enough to have their own names
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.set_xticks([], minor=True)
    if "y" in panel.logarithmic:
        axes.set_yscale("log")
    if panel.floor is not None:
        axes.axhline(panel.floor, color=GREY, ls=":", lw=1)
        axes.text(
            *(0.005, panel.floor, f"below {panel.floor:.0e}: nothing left"),
            transform=axes.get_yaxis_transform(),
            va="bottom",
            color=GREY,
            fontsize="small",
        )
    if panel.limits is not None:
        axes.set_ylim(*panel.limits)
    if panel.ticks:
        _name(axes.xaxis, [label(name) for name in panel.ticks], max(FINEST, (WIDE - 1.5) / len(panel.ticks)))
    axes.set_xlabel(drawable(panel.x), parse_math=False)
    axes.set_ylabel("\n".join(textwrap.wrap(drawable(panel.y), 32)), parse_math=False)
    _bare(axes)
    if len(panel.lines) >= MANY:
        part.legend(loc="outside right upper", frameon=False, fontsize="small")
    elif len(panel.lines) > 1 or panel.shade_name:
        axes.legend(
            frameon=False,
            fontsize="small",
            ncols=min(3, len(panel.lines)),
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            borderaxespad=0.1,
        )
    _head(part, panel)


def _lying(panel: Bars) -> bool:
    """Whether names are too long to stand under bars."""
    return max((len(name) for name in panel.names), default=0) > LONG


def _bars(part: Any, panel: Bars) -> None:
    if _lying(panel):
        return _lying_bars(part, panel)
    axes = part.subplots()
    count, width = len(panel.series), 0.8 / max(1, len(panel.series))
    for number, (name, values) in enumerate(panel.series.items()):
        places = np.arange(len(panel.names)) + (number - (count - 1) / 2) * width
        hatch = HATCHES[number % len(HATCHES)]
        axes.bar(places, values, width, color=SERIES[number % len(SERIES)], hatch=hatch, ec="white", lw=0.3, label=name)
    axes.axhline(0, color=GREY, lw=0.8)
    _name(axes.xaxis, [label(name) for name in panel.names], max(FINEST, (WIDE - 1.5) / max(1, len(panel.names))))
    axes.set_ylabel("\n".join(textwrap.wrap(drawable(panel.y), 26)), parse_math=False)
    if panel.limits is not None:
        axes.set_ylim(*panel.limits)
    _bare(axes)
    axes.grid(axis="x", visible=False)
    if count > 1:
        _legend(axes)
    _head(part, panel)


def _legend(axes: Any) -> None:
    """Above the panel, at its right end."""
    axes.legend(frameon=False, fontsize="small", ncols=4, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)


def _lying_bars(part: Any, panel: Bars) -> None:
    axes = part.subplots()
    count, high = len(panel.series), 0.8 / max(1, len(panel.series))
    for number, (name, values) in enumerate(panel.series.items()):
        places = np.arange(len(panel.names)) + (number - (count - 1) / 2) * high
        hatch = HATCHES[number % len(HATCHES)]
        axes.barh(places, values, high, color=SERIES[number % len(SERIES)], hatch=hatch, ec="white", lw=0.3, label=name)
    axes.set_yticks(range(len(panel.names)), [label(name) for name in panel.names], fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color=GREY, lw=0.8)
    axes.set_xlabel(drawable(panel.y), parse_math=False)
    if panel.limits is not None:
        axes.set_xlim(*panel.limits)
    _bare(axes)
    axes.grid(axis="y", visible=False)
    if count > 1:
        _legend(axes)
    _head(part, panel)


def _pitch(panel: Ribbons) -> float:
    """Inches of a token."""
    return max(min(0.5, WIDEST / max(1, len(panel.tokens))), FINEST)


def _ribbons(part: Any, panel: Ribbons) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    axes = part.subplots()
    count, time = panel.values.shape
    low, high = panel.scale.limits([panel.values])
    thick = 0.8 * np.minimum(np.abs(panel.values) / max(abs(low), abs(high)), 1)
    keep = np.ones_like(panel.values) if panel.keep is None else panel.keep
    cut = 0.5 * (1 - keep)  # a gate that is closed cuts half of its token's band away
    cut[:, 0] = 0
    bands = [
        Rectangle(
            (place - 0.5 + cut[unit, place], unit - thick[unit, place] / 2), 1 - cut[unit, place], thick[unit, place]
        )
        for unit in range(count)
        for place in range(time)
    ]
    paints = [ORANGE if value > 0 else BLUE for value in panel.values.flat]
    axes.add_collection(PatchCollection(bands, facecolors=paints, lw=0))
    axes.hlines(range(count), -0.5, time - 0.5, color=PALE, lw=0.5, zorder=0)
    if panel.write is not None:
        units, places = np.meshgrid(np.arange(count), np.arange(time), indexing="ij")
        sizes = 14 * np.clip(panel.write, 0, 1).ravel() ** 2
        axes.scatter(places.ravel(), units.ravel() + 0.46, s=sizes, color="#333333", lw=0, zorder=3)
    axes.set(xlim=(-0.5, time - 0.5), ylim=(count - 0.3, -0.6))
    axes.xaxis.tick_top()
    _name(axes.xaxis, [label(name) for name in panel.tokens], _pitch(panel))
    axes.set_yticks(range(count), [label(name) for name in panel.names], fontsize=8, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _head(part, panel)


def _laid(panel: ColouredText) -> Iterator[tuple[int, int, int, int]]:
    """Line, first column and width of each token, with its place: as many in a line as fit."""
    line = column = 0
    single = all(len(token) <= 1 for token in panel.tokens[1:])
    for place, token in enumerate(panel.tokens):
        under = len(label(panel.under[place])) if panel.under else 0
        wide = max(len(label(token)), under) + (0 if single and not under else 1)
        if column and column + wide > LINE:
            line, column = line + 1, 0
        yield line, column, wide, place
        column += wide


def _coloured(part: Any, panel: ColouredText) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    axes, shades = part.subplots(), colours(panel.scale)
    low, high = panel.scale.limits([panel.values])
    pitch, lines = (1.9 if panel.under else 1.15), 0
    for line, column, wide, place in _laid(panel):
        lines = max(lines, line + 1)
        value = float(panel.values[place])
        # A whole 1 would be the second colour of the table, and not its end.
        share = min(max((value - low) / (high - low), 0.0), 1.0) if math.isfinite(value) else None
        paint: Any = PALE if share is None else shades(share)
        light = share is None or 0.299 * paint[0] + 0.587 * paint[1] + 0.114 * paint[2] > 0.55
        axes.add_patch(Rectangle((column, line * pitch), wide - 0.15, 1, color=paint, lw=0))
        middle, mono = column + wide / 2 - 0.1, {"ha": "center", "va": "center", "parse_math": False}
        ink = "black" if light else "white"
        axes.text(middle, line * pitch + 0.5, label(panel.tokens[place]), fontsize=9, color=ink, **mono)
        if panel.under and panel.under[place]:
            axes.text(middle, line * pitch + 1.35, label(panel.under[place]), fontsize=7, color=GREY, **mono)
    axes.set(xlim=(0, LINE), ylim=(lines * pitch, -0.1))
    axes.axis("off")
    bar = part.colorbar(ScalarMappable(Normalize(low, high), shades), ax=axes, fraction=0.02, aspect=12)
    bar.outline.set_edgecolor(PALE)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("\n".join(textwrap.wrap(panel.scale.label, 16)), fontsize=7)
    _head(part, panel)


def _head(part: Any, panel: Panel) -> None:
    if panel.title:
        part.suptitle(drawable(panel.title), x=0.01, ha="left", fontsize="medium", parse_math=False)


def _bare(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
