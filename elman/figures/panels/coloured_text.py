"""Coloured text: tokens highlighted by a value, with an annotation under each if there is one."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from elman.figures import terminal
from elman.figures.colours import GREY, PALE, Palette, is_light
from elman.figures.drawing import colour_bar
from elman.figures.fonts import label
from elman.figures.panels.base import Array, Cell, Panel

LINE, WIDTH = 84, 11.0  # characters in a line, and its inches


@dataclass(frozen=True)
class ColouredText(Panel):
    """Tokens, the value of each, and perhaps an annotation of each."""

    kind: ClassVar = "text"
    tokens: Sequence[str]
    values: Array
    under: Sequence[str] = ()

    def table(self) -> Iterator[list[Cell]]:
        yield ["position", "token", "value", *(["note"] if self.under else [])]
        for place, (token, value) in enumerate(zip(self.tokens, self.values, strict=True)):
            yield [place, token, float(value), *([self.under[place]] if self.under else [])]

    def inches(self) -> tuple[float, float]:
        lines = 1 + max((line for line, *_ in self._layout()), default=0)
        return WIDTH, 0.5 + (0.5 if self.under else 0.3) * lines

    def _layout(self) -> Iterator[tuple[int, int, int, int]]:
        """Line, first column, width and position of each token, line after line."""
        line = column = 0
        single = all(len(token) <= 1 for token in self.tokens[1:])
        for place, token in enumerate(self.tokens):
            under = len(label(self.under[place])) if self.under else 0
            wide = max(len(label(token)), under) + (0 if single and not under else 1)
            if column and column + wide > LINE:
                line, column = line + 1, 0
            yield line, column, wide, place
            column += wide

    def draw(self, part: Any, styles: Palette) -> None:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize
        from matplotlib.patches import Rectangle

        axes, limits = part.subplots(), self.scale.limits([self.values])
        pitch, lines = (1.9 if self.under else 1.15), 0
        for line, column, wide, place in self._layout():
            lines = max(lines, line + 1)
            value = float(self.values[place])
            rgb = self.scale.rgb(value, limits) if math.isfinite(value) else None
            axes.add_patch(Rectangle((column, line * pitch), wide - 0.15, 1, color=rgb or PALE, lw=0))
            middle, kwargs = column + wide / 2 - 0.1, {"ha": "center", "va": "center", "parse_math": False}
            ink = "black" if rgb is None or is_light(rgb) else "white"
            axes.text(middle, line * pitch + 0.5, label(self.tokens[place]), fontsize=9, color=ink, **kwargs)
            if self.under and self.under[place]:
                axes.text(middle, line * pitch + 1.35, label(self.under[place]), fontsize=7, color=GREY, **kwargs)
        axes.set(xlim=(0, LINE), ylim=(lines * pitch, -0.1))
        axes.axis("off")
        shades = ScalarMappable(Normalize(*limits), self.scale.colours())
        colour_bar(part, shades, axes, self.scale.label, fraction=0.02, aspect=12)

    def text(self, width: int, colour: bool) -> Iterator[str]:
        """A line for each token: its value as a bar, with colours also as the background of the token."""
        limits = self.scale.limits([self.values])
        yield f"{self.scale.label}, {limits[0]:.3g} to {limits[1]:.3g}"
        for place, (token, value) in enumerate(zip(self.tokens, map(float, self.values), strict=True)):
            name = terminal.fit(token)
            if colour and math.isfinite(value):
                name = terminal.paint(name, self.scale.rgb(value, limits)) + terminal.RESET
            under = f"  {self.under[place]}" if self.under else ""
            line = f"{name} {terminal.cell(value, self.scale, limits)} {value:>8.3g}{under}"
            yield line[: width + 60 if colour else width]
