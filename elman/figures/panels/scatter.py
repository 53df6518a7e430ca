"""Scatter plots of labelled points with error bars, and the Pareto front among them: quality against cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from elman.figures.colours import GREY, Palette
from elman.figures.drawing import finish_chart, legend, log_scale
from elman.figures.fonts import drawable
from elman.figures.panels.base import Cell, Panel


class Point(NamedTuple):
    """With the interval of y, both ends equal where there is none."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Scatter(Panel):
    """One point for each label."""

    kind: ClassVar = "scatter"
    series_field: ClassVar = "points"
    points: Mapping[str, Point]
    x_label: str = ""
    y_label: str = ""
    log_axes: str = ""
    front: Sequence[str] = ()
    """Points that a dotted line joins."""

    def table(self) -> Iterator[list[Cell]]:
        yield ["point", self.x_label or "x", self.y_label or "y", "lowest", "highest"]
        for name, point in self.points.items():
            yield [name, *map(float, point)]

    def inches(self) -> tuple[float, float]:
        return 4.8, 3.7

    def draw(self, part: Any, styles: Palette) -> None:
        axes, (width, _) = part.subplots(), self.size or self.inches()
        for name, (x, y, low, high) in self.points.items():
            error = [[max(0.0, y - low)], [max(0.0, high - y)]]
            style = {"color": styles[name].colour, "marker": styles[name].marker, "ls": "none", "ms": 7}
            axes.errorbar(x, y, yerr=error, capsize=3, label=drawable(name), **style)
        front = [self.points[name] for name in self.front]
        axes.plot([point.x for point in front], [point.y for point in front], color=GREY, lw=1, ls=":", zorder=0)
        for axis in self.log_axes:
            log_scale(getattr(axes, f"{axis}axis"), [getattr(point, axis) for point in self.points.values()])
        finish_chart(axes, self.x_label, self.y_label)
        legend(part, axes, width)

    def text(self, width: int, colour: bool) -> Iterator[str]:
        rows = list(self.table())
        longest = max(len(str(row[0])) for row in rows)
        yield f"{'':{longest}}  x: {self.x_label}; y: {self.y_label}"[:width]
        for name, x, y, low, high in rows[1:]:
            interval = f" ({low:.4g} to {high:.4g})" if low != high else ""
            yield f"{name:{longest}}  {x:>10.4g}  {y:>10.4g}{interval}"[:width]
