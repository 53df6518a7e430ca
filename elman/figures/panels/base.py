"""What every panel offers: a table of its values, a matplotlib drawing and a terminal text."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from elman.figures.colours import SCALES, Palette, Scale
from elman.figures.fonts import label

Array = NDArray[Any]
Values = Sequence[float] | Array
Cell = str | float | int | None


def as_array(values: Any) -> Array:
    """A tensor, list or array as a float64 array on the CPU."""
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True)
class Panel(ABC):
    """One part of a figure. `quantity` names its colour scale; `size` is in inches, by default that of the data."""

    kind: ClassVar[str]
    series_field: ClassVar[str] = ""  # the field whose keys are the names of data series
    title: str = field(default="", kw_only=True)
    quantity: str = field(default="value", kw_only=True)
    size: tuple[float, float] | None = field(default=None, kw_only=True)

    @property
    def scale(self) -> Scale:
        return SCALES[self.quantity]

    @property
    def series(self) -> Sequence[str]:
        """Labels that need a colour of their own."""
        return list(getattr(self, self.series_field)) if self.series_field else ()

    @abstractmethod
    def table(self) -> Iterator[list[Cell]]:
        """One row for each value with its labels, after a row of column names."""

    @abstractmethod
    def inches(self) -> tuple[float, float]:
        """Width and height that suit the data."""

    @abstractmethod
    def draw(self, part: Any, styles: Palette) -> None:
        """On a matplotlib subfigure."""

    @abstractmethod
    def text(self, width: int, colour: bool) -> Iterator[str]:
        """Lines for a terminal of this many columns, with ANSI colours if asked."""

    def texts(self) -> Iterator[str]:
        """Every string that is drawn, so that fonts are found for all scripts: names of series, labels of tokens."""
        for value in vars(self).values():
            if isinstance(value, str):
                yield value
            elif isinstance(value, Mapping):
                yield from value
            elif isinstance(value, Sequence):
                yield from (label(token) for token in value if isinstance(token, str))

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        fields = {name: _plain(value) for name, value in vars(self).items() if name != "size"}
        return {"kind": self.kind, **{name: value for name, value in fields.items() if value not in ("", None, {})}}


def _plain(value: Any) -> Any:
    """Nested lists and dictionaries; infinities and NaN as strings, since JSON has no numbers for them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple | range):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if np.isfinite(value) else str(value)
    return value
