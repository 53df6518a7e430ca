"""Colours, markers and dashes of data series: Okabe and Ito's palette, one style for each label of a page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"
GREY, PALE = "#666666", "#CCCCCC"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
NEGATIVE, POSITIVE = BLUE, VERMILLION  # of signed values, as on the diverging scale
MARKERS, DASHES, HATCHES = "os^DvPX*", ("-", "--", "-.", ":"), ("", "///", "...", "xxx")  # never by hue alone


class Style(NamedTuple):
    """How one series is drawn: in lines, scatter plots and bars alike."""

    colour: str
    marker: str
    dash: str
    hatch: str

    @classmethod
    def number(cls, index: int) -> "Style":
        """The 32 first ones differ in more than the hatch; from the ninth on colours come back with other dashes."""
        turn = index + index // len(SERIES)
        return cls(
            SERIES[index % len(SERIES)],
            MARKERS[index % len(MARKERS)],
            DASHES[turn % len(DASHES)],
            HATCHES[turn % len(HATCHES)],
        )


Palette = Mapping[str, Style]


def assign_styles(panels: Iterable[Sequence[str]]) -> Palette:
    """One style for each label, so that it looks the same in all panels; labels that share a panel differ.

    Greedy graph colouring: labels are nodes, joined where a panel has both, and take, in order of appearance, the
    first style that no neighbour has. Pages thus use few colours, and the first label of most panels is blue.
    """
    groups = [list(dict.fromkeys(labels)) for labels in panels]
    taken: dict[str, int] = {}
    for label in dict.fromkeys(label for group in groups for label in group):
        used = {taken[other] for group in groups if label in group for other in group if other in taken}
        taken[label] = next(index for index in range(len(taken) + 1) if index not in used)
    return {label: Style.number(index) for label, index in taken.items()}
