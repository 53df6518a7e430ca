"""Timelines of single units: the value of a memory cell along a text, with what its gates keep and write.

Each unit is a row of bands, one for each token:

    thickness   absolute value: orange above zero, blue below
    gap         the forget gate: a closed gate cuts half of the token's band
    dot         the input gate: its area is the square of what is written
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from elman.figures.colours import NEGATIVE, PALE, POSITIVE, Palette
from elman.figures.drawing import FINEST, WIDEST, tick_labels
from elman.figures.fonts import label
from elman.figures.panels.base import Array, Cell, Panel
from elman.figures.panels.heat_map import HeatMap


@dataclass(frozen=True)
class UnitTimelines(Panel):
    """`values`, `keep` and `write` are (units, time); the gates may be unknown."""

    kind: ClassVar = "unit timelines"
    names: Sequence[str]
    tokens: Sequence[str]
    values: Array
    keep: Array | None = None
    write: Array | None = None

    def table(self) -> Iterator[list[Cell]]:
        known = {name: part for name, part in (("keep", self.keep), ("write", self.write)) if part is not None}
        yield ["unit", "position", "token", "value", *known]
        for i, name in enumerate(self.names):
            for j, token in enumerate(self.tokens):
                yield [name, j, token, float(self.values[i, j]), *(float(part[i, j]) for part in known.values())]

    def _pitch(self) -> float:
        """Inches of a token."""
        return max(min(0.5, WIDEST / max(1, len(self.tokens))), FINEST)

    def inches(self) -> tuple[float, float]:
        return max(4.0, 1.8 + self._pitch() * len(self.tokens)), 1.2 + 0.42 * len(self.names)

    def draw(self, part: Any, styles: Palette) -> None:
        from matplotlib.collections import PatchCollection
        from matplotlib.patches import Rectangle

        axes, (count, time) = part.subplots(), self.values.shape
        thick = 0.8 * np.minimum(np.abs(self.values) / max(map(abs, self.scale.limits([self.values]))), 1)
        cut = np.zeros_like(self.values) if self.keep is None else 0.5 * (1 - self.keep)
        cut[:, 0] = 0
        bands = [
            Rectangle((t - 0.5 + gap, unit - high / 2), 1 - gap, high)
            for unit in range(count)
            for t, (gap, high) in enumerate(zip(cut[unit].tolist(), thick[unit].tolist(), strict=True))
        ]
        colours = [POSITIVE if value > 0 else NEGATIVE for value in self.values.flat]
        axes.add_collection(PatchCollection(bands, facecolors=colours, lw=0))
        axes.hlines(range(count), -0.5, time - 0.5, color=PALE, lw=0.5, zorder=0)
        if self.write is not None:
            units, places = np.meshgrid(np.arange(count), np.arange(time), indexing="ij")
            areas = 14 * np.clip(self.write, 0, 1).ravel() ** 2
            axes.scatter(places.ravel(), units.ravel() + 0.46, s=areas, color="#333333", lw=0, zorder=3)
        axes.set(xlim=(-0.5, time - 0.5), ylim=(count - 0.3, -0.6))
        axes.xaxis.tick_top()
        tick_labels(axes.xaxis, self.tokens, self._pitch())
        axes.set_yticks(range(count), map(label, self.names), fontsize=8, parse_math=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    def text(self, width: int, colour: bool) -> Iterator[str]:
        """A heat map of the values, and one of each gate."""
        parts = {"value": (self.values, self.quantity), "keep": (self.keep, "gate"), "write": (self.write, "gate")}
        for name, (part, quantity) in parts.items():
            if part is not None:
                yield from HeatMap({name: part}, self.names, self.tokens, quantity=quantity).text(width, colour)
