"""What a picture shows, free of how it is drawn: heat maps, lines, bars and coloured text, as numbers with names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from elman.figures.scales import SCALES, Scale

Numbers = NDArray[Any]
Cell = str | float | int | None


def numbers(values: Any) -> Numbers:
    """A tensor, list or array as an array of floats on the CPU."""
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True)
class Panel:
    """One part of a picture."""

    kind: ClassVar[str]
    title: str = field(default="", kw_only=True)
    quantity: str = field(default="value", kw_only=True)

    @property
    def scale(self) -> Scale:
        return SCALES[self.quantity]

    def table(self) -> Iterator[list[Cell]]:
        """All numbers, one in a row with its names; names of the columns first."""
        raise NotImplementedError

    def plain(self) -> dict[str, Any]:
        """As JSON knows it."""
        shown = {name: _plain(value) for name, value in vars(self).items()}
        return {"kind": self.kind, **{name: value for name, value in shown.items() if value not in ("", None)}}


@dataclass(frozen=True)
class HeatMap(Panel):
    """Matrices of the same rows and columns side by side, each with a name. `time` runs along columns or rows."""

    kind: ClassVar = "heat map"
    maps: Mapping[str, Numbers]
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


@dataclass(frozen=True)
class Lines(Panel):
    """Curves by name: (x, y) each. Below `floor` there is nothing to see: it is drawn as the end of what is known."""

    kind: ClassVar = "lines"
    lines: Mapping[str, tuple[Numbers, Numbers]]
    x: str = ""
    y: str = ""
    logarithmic: str = ""
    """Which axes are: "", "x", "y" or "xy"."""
    floor: float | None = None
    ticks: Sequence[str] = ()
    """Names of the places 0, 1, 2, … along x: tokens."""
    limits: tuple[float, float] | None = None
    shaded: tuple[float, float] | None = None
    """A stretch of x to mark, as the lengths of training."""
    shade_name: str = ""

    def table(self) -> Iterator[list[Cell]]:
        yield ["line", self.x or "x", self.y or "y", *(["name"] if self.ticks else [])]
        for name, (xs, ys) in self.lines.items():
            for x, y in zip(xs, ys, strict=True):
                yield [name, float(x), float(y), *([self.ticks[int(x)]] if self.ticks else [])]


@dataclass(frozen=True)
class Bars(Panel):
    """For each name one bar of each series."""

    kind: ClassVar = "bars"
    names: Sequence[str]
    series: Mapping[str, Numbers]
    y: str = ""
    limits: tuple[float, float] | None = None

    def table(self) -> Iterator[list[Cell]]:
        yield ["series", "place", "name", self.y or "value"]
        for name, values in self.series.items():
            for place, (bar, value) in enumerate(zip(self.names, values, strict=True)):
                yield [name, place, bar, float(value)]


@dataclass(frozen=True)
class ColouredText(Panel):
    """A text whose tokens are coloured by a number, with a word under each if there is one to say."""

    kind: ClassVar = "text"
    tokens: Sequence[str]
    values: Numbers
    under: Sequence[str] = ()

    def table(self) -> Iterator[list[Cell]]:
        yield ["place", "token", "value", *(["note"] if self.under else [])]
        for place, (token, value) in enumerate(zip(self.tokens, self.values, strict=True)):
            yield [place, token, float(value), *([self.under[place]] if self.under else [])]


@dataclass(frozen=True)
class Ribbons(Panel):
    """The memory of units along a text, a band each (units, time): as thick as its value, cut where it is not kept,
    with a dot as large as what is written. `keep` and `write` may be unknown."""

    kind: ClassVar = "ribbons"
    names: Sequence[str]
    tokens: Sequence[str]
    values: Numbers
    keep: Numbers | None = None
    write: Numbers | None = None

    def table(self) -> Iterator[list[Cell]]:
        known = {name: part for name, part in (("keep", self.keep), ("write", self.write)) if part is not None}
        yield ["unit", "place", "token", "value", *known]
        for i, name in enumerate(self.names):
            for j, token in enumerate(self.tokens):
                yield [name, j, token, float(self.values[i, j]), *(float(part[i, j]) for part in known.values())]


def _plain(value: Any) -> Any:
    """Nested lists and names; what is not finite is said in words, which JSON lacks numbers for."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if np.isfinite(value) else str(value)
    return value
