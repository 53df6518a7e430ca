"""Parallel coordinates: one vertical axis for each quantity, and a line through the values of each item."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from elman.figures.colours import GREY, Palette
from elman.figures.drawing import finish_chart, wrap
from elman.figures.fonts import label
from elman.figures.panels.base import Array, Cell, Panel

AXIS = 0.9  # inches from one axis to the next
STRONG = 3  # lines that are drawn thick
SHADES = "viridis"


@dataclass(frozen=True)
class Parallel(Panel):
    """Items are rows, the first one in front: values from 0 to 1 on each axis, where `ticks` say what they mean."""

    kind: ClassVar = "parallel coordinates"
    items: Sequence[str]
    axes: Sequence[str]
    values: Array
    ticks: Sequence[Sequence[tuple[float, str]]]

    def table(self) -> Iterator[list[Cell]]:
        yield ["item", *self.axes]
        for name, row in zip(self.items, self.values, strict=True):
            yield [name, *map(float, row)]

    def inches(self) -> tuple[float, float]:
        return max(4.8, AXIS * len(self.axes)), 3.7

    def texts(self) -> Iterator[str]:
        yield from super().texts()
        yield from (label(text) for marks in self.ticks for _, text in marks)

    def draw(self, part: Any, styles: Palette) -> None:
        import matplotlib

        chart, count = part.subplots(), len(self.items)
        shades = matplotlib.colormaps[SHADES]
        for place in reversed(range(count)):
            strong = place < STRONG
            kwargs: dict[str, Any] = {"lw": 1.8, "alpha": 1.0} if strong else {"lw": 0.8, "alpha": 0.55}
            shade = shades(0.9 * place / max(1, count - 1))
            chart.plot(range(len(self.axes)), self.values[place], color=shade, zorder=count - place, **kwargs)
        paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
        for place, marks in enumerate(self.ticks):
            chart.axvline(place, color=GREY, lw=0.8, zorder=0)
            for height, text in marks:
                style: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
                chart.annotate(label(text), (place, height), parse_math=False, bbox=paper, zorder=count + 1, **style)
        names = [wrap(name.replace("_", " "), 14) for name in self.axes]
        chart.set_xticks(range(len(self.axes)), names, fontsize=8, parse_math=False)
        chart.set_xlim(-0.1, len(self.axes) - 0.45)
        finish_chart(chart, "", "", grid="x")
        chart.set_yticks([])
        chart.spines[["left", "bottom"]].set_visible(False)
        chart.tick_params(length=0)

    def text(self, width: int, colour: bool) -> Iterator[str]:
        """Where the items lie on each axis."""
        longest = max(map(len, self.axes))
        for name, column, marks in zip(self.axes, np.asarray(self.values).T, self.ticks, strict=True):
            places = ["·"] * 21
            for value in column[::-1]:
                places[round(min(max(float(value), 0.0), 1.0) * 20)] = "o"
            places[round(min(max(float(column[0]), 0.0), 1.0) * 20)] = "X"
            ends = f"{marks[0][1]} {''.join(places)} {marks[-1][1]}"
            yield f"{name:{longest}} {ends}"[:width]
        yield "X: the first; o: others"
