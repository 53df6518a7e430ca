"""Heat maps: matrices over the same rows and columns, side by side, as attention heads or gates over time."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from elman.figures import terminal
from elman.figures.colours import PALE, Palette
from elman.figures.drawing import FINEST, WIDEST, colour_bar, tick_labels
from elman.figures.fonts import drawable
from elman.figures.panels.base import Array, Cell, Panel

CELL, LINED = 0.27, 0.12  # inches of a cell at most, and from which on cells are separated by lines
TALLEST, UNITS = 16.0, 2.2  # inches for all rows of tokens, and for all units of a layer
ABREAST = 4  # maps in a row


@dataclass(frozen=True)
class HeatMap(Panel):
    """Named matrices (rows, columns). `time` is the axis of time, "rows" where both sides are tokens."""

    kind: ClassVar = "heat map"
    maps: Mapping[str, Array]
    rows: Sequence[str]
    columns: Sequence[str]
    row_axis: str = ""
    column_axis: str = ""
    time: str = "columns"

    def __post_init__(self) -> None:
        for name, matrix in self.maps.items():
            assert matrix.shape == (len(self.rows), len(self.columns)), f"{name}: {matrix.shape}"

    def table(self) -> Iterator[list[Cell]]:
        yield ["map", self.row_axis or "row", self.column_axis or "column", "row_name", "column_name", "value"]
        for name, matrix in self.maps.items():
            for i, row in enumerate(self.rows):
                for j, column in enumerate(self.columns):
                    yield [name, i, j, row, column, float(matrix[i, j])]

    @property
    def _grid(self) -> tuple[int, int]:
        """Maps below each other and side by side."""
        across = min(len(self.maps), ABREAST)
        return -(-len(self.maps) // across), across

    def _cell(self) -> tuple[float, float]:
        """Inches of a cell: square where both sides are tokens; units of a layer take less."""
        _, across = self._grid
        if self.time == "rows":
            cell = max(min(CELL, WIDEST / (across * len(self.columns)), TALLEST / len(self.rows)), FINEST)
            return cell, cell
        wide = max(min(CELL * 1.2, WIDEST / (across * len(self.columns))), FINEST)
        return wide, max(min(CELL * 0.7, UNITS / len(self.rows)), 0.004)

    def inches(self) -> tuple[float, float]:
        (wide, high), (down, across) = self._cell(), self._grid
        width, height = max(across * wide * len(self.columns), 2.5), max(down * high * len(self.rows), 1.5)
        return width + 2 + 0.3 * across, height + 0.8 + 0.5 * down

    def draw(self, part: Any, styles: Palette) -> None:
        (wide, high), (down, across) = self._cell(), self._grid
        low, top = self.scale.limits(self.maps.values())
        shades = self.scale.colours().with_extremes(bad=PALE)
        panels = part.subplots(down, across, sharey=True, squeeze=False)
        for axes, (name, matrix) in zip(panels.flat, self.maps.items(), strict=False):
            aspect = "equal" if self.time == "rows" else "auto"  # maps over the same tokens fill one width
            image = axes.imshow(matrix, cmap=shades, vmin=low, vmax=top, aspect=aspect, interpolation="nearest")
            axes.xaxis.tick_top()
            tick_labels(axes.xaxis, self.columns, wide)
            tick_labels(axes.yaxis, self.rows, high)
            axes.tick_params(length=0)
            axes.spines[:].set_color(PALE)
            if min(wide, high) >= LINED:
                lines: Any = {"color": PALE, "lw": 0.5}
                axes.vlines(np.arange(len(self.columns) - 1) + 0.5, -0.5, len(self.rows) - 0.5, **lines)
                axes.hlines(np.arange(len(self.rows) - 1) + 0.5, -0.5, len(self.columns) - 0.5, **lines)
            axes.set_xlabel(drawable(name or self.column_axis), parse_math=False)
            if axes is panels[0, 0] or down > 1:
                axes.set_ylabel(drawable(self.row_axis), parse_math=False)
        for axes in panels.flat[len(self.maps) :]:
            axes.set_visible(False)
        below = any(np.nanmin(matrix) < low - 1e-6 for matrix in self.maps.values())
        above = any(np.nanmax(matrix) > top + 1e-6 for matrix in self.maps.values())
        ends = ("both" if above else "min") if below else "max" if above else "neither"
        tall = down * high * len(self.rows)
        shrink = min(1.0, 2.5 / tall) if tall > 1.2 else 1.0
        colour_bar(part, image, panels, self.scale.label, fraction=0.03, shrink=shrink, aspect=15, extend=ends)

    def text(self, width: int, colour: bool) -> Iterator[str]:
        """Time runs down; where there are more columns than fit, several are averaged."""
        limits = self.scale.limits(self.maps.values())
        turned = self.time == "columns"
        down, across = (self.columns, self.rows) if turned else (self.rows, self.columns)
        axis = self.row_axis if turned else self.column_axis
        each = terminal.cell_width(self.scale)
        step = math.ceil(len(across) / max(1, (width - terminal.LABEL - 1) // each))
        yield f"{self.scale.label}, {limits[0]:.3g} to {limits[1]:.3g}" + (
            f"; each column is the mean of {step} {axis or 'columns'}" if step > 1 else ""
        )
        for name, matrix in self.maps.items():
            values = matrix.T if turned else matrix
            pooled = [values[:, start : start + step].mean(1) for start in range(0, values.shape[1], step)]
            if name:
                yield f"[{name}]"
            yield from terminal.column_labels([terminal.visible(one) for one in across[::step]], each)
            for row_label, row in zip(down, np.stack(pooled, 1), strict=True):
                cells = "".join(terminal.cell(value, self.scale, limits, colour) for value in row)
                yield f"{terminal.fit(row_label)} {cells}{terminal.RESET if colour else ''}"
