"""What a quantity looks like: its range, colours and name, the same in every picture, so that pictures compare."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLUE, ORANGE, GREY, PALE = "#0072B2", "#D55E00", "#666666", "#CCCCCC"
SERIES = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", GREY)  # Okabe and Ito's, and a grey
STROKES = ("-", "--", "-.", ":")  # never by hue alone
MARKERS = "os^DvPX*"
BOTH_WAYS = "blue to orange"
CENTRED = ("#08306B", "#2171B5", "#6BAED6", "#C6DBEF", "#F7F7F7", "#FDD0A2", "#FD8D3C", "#D94801", "#7F2704")


class Scale(NamedTuple):
    """From `low` to `high` in these colours; None is found from the numbers. What is beyond has the last colour."""

    low: float | None
    high: float | None
    colours: str
    label: str

    @property
    def centred(self) -> bool:
        return self.colours == BOTH_WAYS

    def limits(self, values: Iterable[NDArray[Any]]) -> tuple[float, float]:
        """The ends of the scale for these numbers."""
        finite = np.concatenate([part[np.isfinite(part)].ravel() for part in map(np.asarray, values)] or [np.zeros(0)])
        largest = float(np.abs(finite).max(initial=0)) or 1.0
        low, high = self.low, self.high
        if self.centred:
            return (-largest, largest) if low is None or high is None else (low, high)
        low = float(finite.min(initial=0)) if low is None else low
        high = (float(finite.max(initial=low)) if finite.size else low) if high is None else high
        return low, high if high > low else low + 1


SCALES = {
    "gate": Scale(0, 1, "cividis", "gate: 0 closed, 1 open"),
    "state": Scale(-1, 1, BOTH_WAYS, "state"),
    "attention": Scale(0, 1, "Blues", "attention"),
    "probability": Scale(0, 1, "Blues", "probability"),
    "surprisal": Scale(0, 12, "Oranges", "surprisal in bits"),
    "order": Scale(1, 5, "cividis", "length of the n-gram used"),
    "gradient": Scale(-8, 0, "cividis", "gradient, power of ten of the largest"),
    "influence": Scale(-1, 1, BOTH_WAYS, "influence, of the largest"),
    "value": Scale(None, None, BOTH_WAYS, "value"),
}
OF_SITES = {
    "gate": ("gate", "decay", "forget"),
    "attention": ("weights", "probabilities", "shares"),
    "state": ("hidden", "memory", "state", "candidate", "sum", "joined", "readout", "vector"),
    "order": ("order", "context"),
}


def quantity_of(site: str) -> str:
    """Which scale a site's values are shown on, by the words of its name."""
    words = site.split(".")
    return next((name for name, known in OF_SITES.items() if any(word in known for word in words[-2:])), "value")
