"""Colours: one style for each data series of a page, one scale for each quantity, so that figures compare.

Series have colours of Okabe and Ito's palette, with markers, dashes and hatches. Scales have the same range, colour map
and label in every figure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"
GREY, PALE = "#666666", "#CCCCCC"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
NEGATIVE, POSITIVE = BLUE, VERMILLION  # of signed values, as on the diverging scale
MARKERS, DASHES, HATCHES = "os^DvPX*", ("-", "--", "-.", ":"), ("", "///", "...", "xxx")  # never by hue alone
DIVERGING = "blue to orange"
STOPS = ("#08306B", "#2171B5", "#6BAED6", "#C6DBEF", "#F7F7F7", "#FDD0A2", "#FD8D3C", "#D94801", "#7F2704")


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


class Scale(NamedTuple):
    """Values from `low` to `high`; None takes the end from the data. Values outside have the colour of the end."""

    low: float | None
    high: float | None
    colour_map: str
    label: str

    @property
    def diverging(self) -> bool:
        return self.colour_map == DIVERGING

    def limits(self, values: Iterable[NDArray[Any]]) -> tuple[float, float]:
        """The ends of the scale for these values; symmetric about zero on a diverging scale."""
        finite = np.concatenate([part[np.isfinite(part)].ravel() for part in map(np.asarray, values)] or [np.zeros(0)])
        largest = float(np.abs(finite).max(initial=0)) or 1.0
        low, high = self.low, self.high
        if self.diverging:
            return (-largest, largest) if low is None or high is None else (low, high)
        low = float(finite.min(initial=0)) if low is None else low
        high = (float(finite.max(initial=low)) if finite.size else low) if high is None else high
        return low, high if high > low else low + 1

    def colours(self) -> Any:
        """The matplotlib colour map, from 0 (low) to 1 (high)."""
        import matplotlib
        from matplotlib.colors import LinearSegmentedColormap

        if self.diverging:
            return LinearSegmentedColormap.from_list(self.colour_map, STOPS)
        return matplotlib.colormaps[self.colour_map]

    def rgb(self, value: float, limits: tuple[float, float]) -> tuple[float, float, float]:
        """The colour of a value, channels from 0 to 1."""
        low, high = limits
        # As a float: an integer 1 would be the second entry of the colour map instead of its end.
        red, green, blue, _ = self.colours()(min(max((value - low) / (high - low), 0.0), 1.0))
        return red, green, blue


def is_light(rgb: tuple[float, float, float]) -> bool:
    """Whether black text is readable on a colour (luma above 0.55)."""
    red, green, blue = rgb
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.55


SCALES = {
    "gate": Scale(0, 1, "cividis", "gate: 0 closed, 1 open"),
    "state": Scale(-1, 1, DIVERGING, "state"),
    "attention": Scale(0, 1, "Blues", "attention weight"),
    "probability": Scale(0, 1, "Blues", "probability"),
    "surprisal": Scale(0, 12, "Oranges", "surprisal (bits)"),
    "order": Scale(1, 5, "cividis", "n-gram order used"),
    "gradient": Scale(-8, 0, "cividis", "log10 gradient norm, relative to the largest"),
    "influence": Scale(-1, 1, DIVERGING, "attribution, relative to the largest"),
    "value": Scale(None, None, DIVERGING, "value"),
}
QUANTITY_OF_SITE = {
    "gate": ("gate", "decay", "forget"),
    "attention": ("weights", "probabilities", "shares"),
    "state": ("hidden", "memory", "state", "candidate", "sum", "joined", "readout", "vector"),
    "order": ("order", "context"),
}


def quantity_of(site: str) -> str:
    """The scale that a site's values are shown on, by the last two parts of its name."""
    parts = site.split(".")[-2:]
    return next((name for name, known in QUANTITY_OF_SITE.items() if any(part in known for part in parts)), "value")
