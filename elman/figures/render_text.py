"""Pictures as text: bars of eighths, a sign where there are two ways to go, colours where the terminal has them."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import cell_len, set_cell_size

from elman.figures.panels import Bars, ColouredText, HeatMap, Lines, Panel, Ribbons
from elman.figures.scales import Scale

if TYPE_CHECKING:
    from elman.figures.figure import Figure

EIGHTHS = " ▁▂▃▄▅▆▇█"
NAME = 14  # columns for names of rows
HIGH = 12  # rows of a chart
BRIGHT, RESET = "\x1b[48;2;{};{};{}m\x1b[38;2;{};{};{}m", "\x1b[0m"


def text(figure: "Figure", width: int = 100, colour: bool = False) -> str:
    lines = [figure.title, *([figure.of] if figure.of else []), ""]
    for panel in figure.panels:
        lines += [panel.title] if panel.title else []
        lines += [*_lines_of(panel, width, colour), ""]
    for note in figure.notes:
        lines += textwrap.wrap(note, width)
    return "\n".join(line.rstrip() if not colour else line for line in lines).rstrip() + "\n"


def _lines_of(panel: Panel, width: int, colour: bool) -> Iterator[str]:
    if isinstance(panel, HeatMap):
        yield from _heat(panel, width, colour)
    elif isinstance(panel, Lines):
        yield from _chart(panel, width)
    elif isinstance(panel, Bars):
        yield from _bars(panel, width)
    elif isinstance(panel, Ribbons):
        parts = {"value": (panel.values, panel.quantity), "keep": (panel.keep, "gate"), "write": (panel.write, "gate")}
        for name, (part, quantity) in parts.items():
            if part is not None:
                yield from _heat(HeatMap({name: part}, panel.names, panel.tokens, quantity=quantity), width, colour)
    else:
        assert isinstance(panel, ColouredText)
        yield from _words(panel, width, colour)


def _heat(panel: HeatMap, width: int, colour: bool) -> Iterator[str]:
    """Time runs down; where there are more columns than fit, several become their mean."""
    limits = panel.scale.limits(panel.maps.values())
    down, across = (panel.columns, panel.rows) if panel.time == "columns" else (panel.rows, panel.columns)
    axis = panel.row_axis if panel.time == "columns" else panel.column_axis
    each = 2 if panel.scale.centred else 1
    room = max(1, (width - NAME - 1) // each)
    step = math.ceil(len(across) / room)
    yield f"{panel.scale.label}, {limits[0]:.3g} to {limits[1]:.3g}" + (
        f"; each column is the mean of {step} {axis or 'columns'}" if step > 1 else ""
    )
    heads = [_visible(name) for name in across[::step]]
    numbered = all(name.isdigit() for name in heads)
    for name, matrix in panel.maps.items():
        turned = matrix.T if panel.time == "columns" else matrix
        pooled = [turned[:, start : start + step].mean(1) for start in range(0, turned.shape[1], step)]
        if name:
            yield f"[{name}]"
        if not numbered:
            yield from _upright(heads, each)
        elif len(heads) > 1:
            yield " " * (NAME + 1) + _ruler([int(head) for head in heads], each)
        for label, row in zip(down, np.stack(pooled, 1), strict=True):
            cells = "".join(_cell(value, panel.scale, limits, colour) for value in row)
            yield f"{_fit(_visible(label), NAME)} {cells}{RESET if colour else ''}"


def _cell(value: float, scale: Scale, limits: tuple[float, float], colour: bool) -> str:
    if not math.isfinite(value):
        return "?" * (2 if scale.centred else 1)
    low, high = limits
    if colour:
        paint, ink = rgb(value, scale, limits), (0, 0, 0)
        shown = " " * (2 if scale.centred else 1)
        return BRIGHT.format(*paint, *ink) + shown
    if scale.centred:
        size = round(min(abs(value) / max(abs(low), abs(high)), 1) * 8)
        return " ·" if size == 0 else f"{'+' if value > 0 else '-'}{EIGHTHS[size]}"
    return EIGHTHS[round(min(max((value - low) / (high - low), 0), 1) * 8)]


def rgb(value: float, scale: Scale, limits: tuple[float, float]) -> tuple[int, int, int]:
    """The colour of a number on a scale."""
    from elman.figures.render_matplotlib import colours

    low, high = limits
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    red, green, blue, _ = colours(scale)(share)
    return round(255 * red), round(255 * green), round(255 * blue)


def _upright(names: Sequence[str], each: int) -> Iterator[str]:
    """Names of columns from top to bottom, ending above their column."""
    high = min(max(map(len, names), default=0), 8)
    for line in range(high):
        letters = [name[:high].rjust(high)[line] for name in names]
        yield " " * (NAME + 1) + "".join(letter.rjust(each) if cell_len(letter) == 1 else letter for letter in letters)


def _ruler(numbers: Sequence[int], each: int) -> str:
    line = ""
    for place, number in enumerate(numbers):
        if len(line) <= place * each and (place % 10 == 0):
            line = line.ljust(place * each) + str(number)
    return line


def _chart(panel: Lines, width: int) -> Iterator[str]:
    """Each curve by its own letter; the axes as they are asked for."""
    points = {name: _points(panel, name) for name in panel.lines}
    every = [point for found in points.values() for point in found]
    if not every:
        yield "(nothing to draw)"
        return
    xs, ys = zip(*every, strict=True)
    low, high = (min(ys), max(ys)) if panel.limits is None or "y" in panel.logarithmic else panel.limits
    left, right = min(xs), max(xs)
    high, right = high if high > low else low + 1, right if right > left else left + 1
    wide = width - NAME - 2
    grid = [[" "] * wide for _ in range(HIGH)]
    letters = dict(zip(points, "ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 4, strict=False))
    for name, found in points.items():
        for x, y in found:
            row = HIGH - 1 - round((min(max(y, low), high) - low) / (high - low) * (HIGH - 1))
            grid[row][round((x - left) / (right - left) * (wide - 1))] = letters[name]
    for row, line in enumerate(grid):
        value = high - (high - low) * row / (HIGH - 1)
        shown = f"{10**value:.0e}" if "y" in panel.logarithmic else f"{value:.3g}"
        yield f"{shown if row % 3 == 2 or row == 0 else '':>{NAME}} │{''.join(line)}"
    ends = [f"{10**end:.3g}" if "x" in panel.logarithmic else f"{end:.3g}" for end in (left, right)]
    yield f"{'':>{NAME}} └{'─' * wide}"
    middle = panel.x[: wide - len(ends[0]) - len(ends[1]) - 2].center(wide - len(ends[0]) - len(ends[1]))
    yield f"{'':>{NAME}}  {ends[0]}{middle}{ends[1]}"
    for name, letter in letters.items():
        yield f"{'':>{NAME}}  {letter} {name}"


def _points(panel: Lines, name: str) -> list[tuple[float, float]]:
    xs, ys = (np.asarray(part, dtype=np.float64) for part in panel.lines[name])
    if "y" in panel.logarithmic and panel.floor is not None:
        ys = np.maximum(ys, panel.floor)
    keep = np.isfinite(xs) & np.isfinite(ys)
    for axis, part in (("x", xs), ("y", ys)):
        keep &= part > 0 if axis in panel.logarithmic else True
    xs, ys = xs[keep], ys[keep]
    xs = np.log10(xs) if "x" in panel.logarithmic else xs
    ys = np.log10(ys) if "y" in panel.logarithmic else ys
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def _bars(panel: Bars, width: int) -> Iterator[str]:
    largest = max((float(np.abs(values).max(initial=0)) for values in panel.series.values()), default=0) or 1.0
    if panel.limits is not None:
        largest = max(map(abs, panel.limits))
    longest = max(map(cell_len, panel.series)) if len(panel.series) > 1 else 0
    room = max(8, width - NAME - longest - 12)
    for place, name in enumerate(panel.names):
        for number, (series, values) in enumerate(panel.series.items()):
            value = float(values[place])
            filled = min(abs(value) / largest, 1) * room if math.isfinite(value) else 0
            bar = "█" * int(filled) + " ▏▎▍▌▋▊▉"[int(filled % 1 * 8)]
            head = _fit(_visible(name), NAME) if number == 0 else " " * NAME
            label = set_cell_size(series, longest) + " " if longest else ""
            yield f"{head} {label}{value:>8.3g} {'-' if value < 0 else ' '}{bar}"


def _words(panel: ColouredText, width: int, colour: bool) -> Iterator[str]:
    """With colours the text itself; without, each token with its number as a bar."""
    limits = panel.scale.limits([panel.values])
    yield f"{panel.scale.label}, {limits[0]:.3g} to {limits[1]:.3g}"
    for place, (token, value) in enumerate(zip(panel.tokens, panel.values, strict=True)):
        name = _fit(_visible(token), NAME)
        if colour and math.isfinite(value):
            red, green, blue = rgb(float(value), panel.scale, limits)
            ink = (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else (255, 255, 255)
            name = BRIGHT.format(red, green, blue, *ink) + name + RESET
        under = f"  {panel.under[place]}" if panel.under else ""
        full = _cell(float(value), panel.scale, limits, False)
        yield f"{name} {full} {float(value):>8.3g}{under}"[: width + 60 if colour else width]


def _visible(token: str) -> str:
    signs = {"\n": "↵", "\t": "⇥", "\r": "␍"}
    shown = "".join(signs.get(sign, sign if sign.isprintable() else "\ufffd") for sign in token)
    return "␣" if shown == " " else shown or "∅"


def _fit(name: str, size: int) -> str:
    return set_cell_size(name if cell_len(name) <= size else name[: size - 1] + "…", size)


def supports_colour(stream: Any) -> bool:
    import os

    return bool(getattr(stream, "isatty", lambda: False)()) and "NO_COLOR" not in os.environ
