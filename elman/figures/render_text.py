"""Figures as terminal text."""

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elman.figures.figure import Figure


def render(figure: "Figure", width: int = 100, colour: bool = False) -> str:
    """Title, panels and notes, within `width` columns; with ANSI colours if asked."""
    lines = [figure.title, *([figure.subtitle] if figure.subtitle else []), ""]
    for panel in figure.panels:
        lines += [panel.title] if panel.title else []
        lines += [*panel.text(width, colour), ""]
    for note in figure.notes:
        lines += textwrap.wrap(note, width)
    return "\n".join(line.rstrip() if not colour else line for line in lines).rstrip() + "\n"
