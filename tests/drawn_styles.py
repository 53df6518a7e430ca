"""Colours and markers by label, as matplotlib has drawn them."""

from collections.abc import Iterable

from matplotlib.colors import to_hex

from elman.figures.drawing import canvas
from elman.figures.figure import Figure


def drawn_styles(figures: Iterable[Figure]) -> dict[str, set[tuple[str, str]]]:
    """Of lines, points and bars in all panels; more than one style for a label is a mistake.

    Bars and lines of many points have no marker: they count with others of their label and colour.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for figure in figures:
        for axes in canvas(figure).get_axes():
            for artist, label in zip(*axes.get_legend_handles_labels(), strict=True):
                if hasattr(artist, "patches"):
                    style = to_hex(artist.patches[0].get_facecolor()), "None"
                elif hasattr(line := getattr(artist, "lines", [artist])[0], "get_marker"):
                    style = to_hex(line.get_color()), str(line.get_marker())
                else:  # a shaded span
                    continue
                found.setdefault(label, set()).add(style)
    for styles in found.values():
        marked = {colour for colour, marker in styles if marker != "None"}
        styles -= {(colour, "None") for colour in marked}
    return found
