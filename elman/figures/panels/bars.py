"""Bar charts: grouped bars, vertical, or horizontal where their names are long."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from rich.cells import cell_len, set_cell_size

from elman.figures import terminal
from elman.figures.colours import GREY, Palette
from elman.figures.drawing import FINEST, WIDE, finish_chart, legend, tick_labels
from elman.figures.fonts import drawable, label
from elman.figures.panels.base import Cell, Panel, Values

LONG = 16  # signs of a name that is better read beside its bar than under it


@dataclass(frozen=True)
class Bars(Panel):
    """For each name one bar of each series."""

    kind: ClassVar = "bars"
    series_field: ClassVar = "bars"
    names: Sequence[str]
    bars: Mapping[str, Values]
    y_label: str = ""
    limits: tuple[float, float] | None = None

    @property
    def horizontal(self) -> bool:
        return max((len(name) for name in self.names), default=0) > LONG

    def table(self) -> Iterator[list[Cell]]:
        yield ["series", "position", "name", self.y_label or "value"]
        for series, values in self.bars.items():
            for place, (name, value) in enumerate(zip(self.names, values, strict=True)):
                yield [series, place, name, float(value)]

    def inches(self) -> tuple[float, float]:
        return WIDE, 0.9 + 0.1 * len(self.names) * (1 + len(self.bars)) if self.horizontal else 2.6

    def draw(self, part: Any, styles: Palette) -> None:
        axes, (width, _) = part.subplots(), self.size or self.inches()
        count, thick = len(self.bars), 0.8 / max(1, len(self.bars))
        for number, (name, values) in enumerate(self.bars.items()):
            places = np.arange(len(self.names)) + (number - (count - 1) / 2) * thick
            kwargs = {"color": styles[name].colour, "hatch": styles[name].hatch, "ec": "white", "lw": 0.3}
            (axes.barh if self.horizontal else axes.bar)(places, values, thick, label=drawable(name), **kwargs)
        if self.horizontal:
            axes.set_yticks(range(len(self.names)), map(label, self.names), fontsize=8, parse_math=False)
            axes.invert_yaxis()
            axes.axvline(0, color=GREY, lw=0.8)
            finish_chart(axes, self.y_label, "", grid="x")
        else:
            tick_labels(axes.xaxis, self.names, max(FINEST, (width - 1.5) / max(1, len(self.names))))
            axes.axhline(0, color=GREY, lw=0.8)
            finish_chart(axes, "", self.y_label, grid="y")
        if self.limits is not None:
            (axes.set_xlim if self.horizontal else axes.set_ylim)(*self.limits)
        if count > 1:
            legend(part, axes, width)

    def text(self, width: int, colour: bool) -> Iterator[str]:
        largest = max((float(np.abs(values).max(initial=0)) for values in self.bars.values()), default=0) or 1.0
        largest = largest if self.limits is None else max(map(abs, self.limits))
        longest = max(map(cell_len, self.bars)) if len(self.bars) > 1 else 0
        room = max(8, width - terminal.LABEL - longest - 12)
        for place, name in enumerate(self.names):
            for number, (series, values) in enumerate(self.bars.items()):
                value = float(values[place])
                bar = terminal.bar(abs(value) / largest if np.isfinite(value) else 0, room)
                head = terminal.fit(name) if number == 0 else " " * terminal.LABEL
                own = set_cell_size(series, longest) + " " if longest else ""
                yield f"{head} {own}{value:>8.3g} {'-' if value < 0 else ' '}{bar}"
