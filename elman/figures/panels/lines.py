"""Line charts: curves by label, with bands, reference lines, log axes, or tokens along the x axis."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from elman.figures import terminal
from elman.figures.colours import Palette
from elman.figures.drawing import FINEST, MARKED, WIDE, finish_chart, legend, log_scale, reference_line, tick_labels
from elman.figures.fonts import drawable
from elman.figures.panels.base import Cell, Panel, Values

HEIGHT = 12  # rows of a chart in the terminal
THOUSANDS = 10_000  # from such x values on, ticks read 20k, 3M
SHARE = (-0.03, 1.03)  # limits of y for shares, with room for markers at 0 and 1
Curve = tuple[Values, Values]


@dataclass(frozen=True)
class Lines(Panel):
    """Curves (x, y) by label."""

    kind: ClassVar = "lines"
    series_field: ClassVar = "lines"
    lines: Mapping[str, Curve]
    x_label: str = ""
    y_label: str = ""
    log_axes: str = ""  # axes with a log scale: "", "x", "y" or "xy"
    floor: float | None = None  # values below are drawn here: the smallest normal number, where gradients underflow
    ticks: Sequence[str] = ()  # labels of 0, 1, 2, … along x: tokens or classes
    limits: tuple[float, float] | None = None  # of y
    bands: Mapping[str, Curve] = field(default_factory=dict)  # the lowest and highest y of some lines, as over seeds
    raw: Mapping[str, Curve] = field(default_factory=dict)  # noisy data of which a line is the mean: pale beneath it
    raw_points: bool = False  # these as points, where their order means nothing
    references: Mapping[str, float] = field(default_factory=dict)  # horizontal lines: chance, the entropy of a language
    x_span: tuple[float, float] | None = None  # a range of x to shade, as the lengths of training
    x_span_label: str = ""

    def table(self) -> Iterator[list[Cell]]:
        yield [
            "line", self.x_label or "x", self.y_label or "y", *(["name"] if self.ticks else []),
            *(["lowest", "highest"] if self.bands else []),
        ]  # fmt: skip
        for name, (xs, ys) in self.lines.items():
            low, high = self.bands.get(name, (ys, ys))
            for place, (x, y) in enumerate(zip(xs, ys, strict=True)):
                ends = [float(low[place]), float(high[place])] if self.bands else []
                yield [name, float(x), float(y), *([self.ticks[int(x)]] if self.ticks else []), *ends]

    def inches(self) -> tuple[float, float]:
        return WIDE, 4.2 if len(self.lines) > 3 else 3.0

    def draw(self, part: Any, styles: Palette) -> None:
        axes, (width, _) = part.subplots(), self.size or self.inches()
        if self.x_span:
            axes.axvspan(*self.x_span, color="#000000", alpha=0.06, lw=0, label=self.x_span_label or None)
        for name, curve in self.lines.items():
            style = styles[name]
            xs, ys = (np.asarray(one, dtype=np.float64) for one in curve)
            if name in self.raw:
                points = (
                    {"ls": "none", "marker": ".", "ms": 6, "alpha": 0.5} if self.raw_points else {"lw": 1, "alpha": 0.3}
                )
                axes.plot(*self.raw[name], color=style.colour, **points)
            if name in self.bands:
                axes.fill_between(xs, *self.bands[name], color=style.colour, alpha=0.16, lw=0)
            ys = ys if self.floor is None else np.maximum(ys, self.floor)
            marker = style.marker if len(xs) <= MARKED else None
            kwargs: dict[str, Any] = {"color": style.colour, "ls": style.dash, "marker": marker, "ms": 4, "lw": 1.5}
            axes.plot(xs, ys, label=drawable(name), **kwargs)
        for text, value in self.references.items():
            reference_line(axes, text, value)
        self._mark_x(axes)
        if "y" in self.log_axes:
            log_scale(axes.yaxis, [])
        if self.floor is not None:
            reference_line(axes, f"below {self.floor:.0e}: underflow", self.floor, ":")
        if self.limits is not None:
            axes.set_ylim(*self.limits)
        if self.ticks:
            tick_labels(axes.xaxis, self.ticks, max(FINEST, (width - 1.5) / len(self.ticks)))
        finish_chart(axes, self.x_label, self.y_label)
        if len(self.lines) > 1 or self.x_span_label:
            legend(part, axes, width)

    def _mark_x(self, axes: Any) -> None:
        """Scale and ticks of the x axis."""
        places = [float(x) for xs, _ in self.lines.values() for x in xs]
        if "x" in self.log_axes:
            log_scale(axes.xaxis, places, at_values=True)
            return
        if all(place.is_integer() for place in places):
            axes.xaxis.get_major_locator().set_params(integer=True)  # there is no trial 1.5
        if places and max(places) >= THOUSANDS:
            from matplotlib.ticker import EngFormatter

            axes.xaxis.set_major_formatter(EngFormatter(sep=""))

    def text(self, width: int, colour: bool) -> Iterator[str]:
        """Each curve by a letter of its own, on the axes of the figure."""
        points = {name: self._points(name) for name in self.lines}
        every = [point for curve in points.values() for point in curve]
        if not every:
            yield "(no data)"
            return
        xs, ys = zip(*every, strict=True)
        low, high = (min(ys), max(ys)) if self.limits is None or "y" in self.log_axes else self.limits
        left, right = min(xs), max(xs)
        high, right = high if high > low else low + 1, right if right > left else left + 1
        wide, margin = width - terminal.LABEL - 2, " " * terminal.LABEL
        grid = [[" "] * wide for _ in range(HEIGHT)]
        letters = dict(zip(points, "ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 4, strict=False))
        for name, curve in points.items():
            for x, y in curve:
                row = HEIGHT - 1 - round((min(max(y, low), high) - low) / (high - low) * (HEIGHT - 1))
                grid[row][round((x - left) / (right - left) * (wide - 1))] = letters[name]
        for row, line in enumerate(grid):
            value = high - (high - low) * row / (HEIGHT - 1)
            shown = f"{10**value:.0e}" if "y" in self.log_axes else f"{value:.3g}"
            yield f"{shown if row % 3 == 2 or row == 0 else '':>{terminal.LABEL}} │{''.join(line)}"
        ends = [f"{10**end:.3g}" if "x" in self.log_axes else f"{end:.3g}" for end in (left, right)]
        yield f"{margin} └{'─' * wide}"
        room = wide - len(ends[0]) - len(ends[1])
        yield f"{margin}  {ends[0]}{self.x_label[: room - 2].center(room)}{ends[1]}"
        for name, letter in letters.items():
            yield f"{margin}  {letter} {name}"
        for name, value in self.references.items():
            yield f"{margin}  ┄ {name}: {value:.4g}"

    def _points(self, name: str) -> list[tuple[float, float]]:
        """Finite ones, as they lie on the axes: logarithms where these are logarithmic."""
        xs, ys = (np.asarray(part, dtype=np.float64) for part in self.lines[name])
        ys = ys if self.floor is None else np.maximum(ys, self.floor)
        with np.errstate(divide="ignore", invalid="ignore"):
            xs = np.log10(xs) if "x" in self.log_axes else xs
            ys = np.log10(ys) if "y" in self.log_axes else ys
        keep = np.isfinite(xs) & np.isfinite(ys)
        return list(zip(xs[keep].tolist(), ys[keep].tolist(), strict=True))
