"""What an inspection found: a figure, and the numbers that it shows as tensors and data frames.

found = model.attention("the cat sat")
found["layers.0.attention.weights"]   a tensor (heads, queries, keys)
found.frame()                         the same as a pandas DataFrame: one row for each value, with its labels
found.plot(), found.save("map.svg")   the figure, drawn by matplotlib or written to a file; a notebook shows it
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.errors import ConfigError, MissingExtra, nearest
from elman.figures.figure import Figure

if TYPE_CHECKING:
    from pandas import DataFrame

REPEATED = ("token", "query", "key", "prediction", "read")  # axes whose labels are tokens or predictions


class Numbers(NamedTuple):
    """Values, or texts beside them, with the name of each axis and the labels of its positions."""

    values: Tensor | list[str]
    axes: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, values: Any, **axes: Sequence[Any]) -> "Numbers":
        """Of a tensor, an array or a list of numbers; an axis beyond the last labels counts on."""
        return cls(torch.as_tensor(values), axes)


@dataclass(frozen=True, repr=False)
class Inspection(Figure):
    """A figure with its numbers by name: `found[name]` is a tensor, `found.frame(name)` a pandas DataFrame."""

    numbers: Mapping[str, Numbers] = field(default_factory=dict, kw_only=True)

    def __getitem__(self, name: str) -> Any:
        """The values under a name: a tensor, or texts."""
        if name not in self.numbers:
            known = ", ".join(self.numbers)
            raise ConfigError(f"{name!r} is none of its numbers{nearest(name, self.numbers)}; it has {known}")
        return self.numbers[name].values

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def axes(self, name: str) -> Mapping[str, Sequence[Any]]:
        """The name of each axis of some values, with the labels of its positions: tokens, heads, units."""
        self[name]
        return self.numbers[name].axes

    def frame(self, *names: str) -> "DataFrame":
        """Numbers as a pandas DataFrame, by default the first and all others over the same axes.

        A row for each value, a column for each axis, and one for each name; where labels differ between names, columns
        `name` and `value` instead.
        """
        for name in names:
            self[name]
        first = next(iter(self.numbers.values()))
        chosen = names or [name for name, one in self.numbers.items() if list(one.axes) == list(first.axes)]
        return data_frame({name: self.numbers[name] for name in chosen})

    def __repr__(self) -> str:
        sizes = (f"{name} {' × '.join(map(str, np.shape(one.values)))}" for name, one in self.numbers.items())
        return f"<{self.title}: {', '.join(sizes)}>" if self.numbers else super().__repr__()


def data_frame(numbers: Mapping[str, Numbers]) -> "DataFrame":
    """One row for each value."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("a data frame", "pandas", "data") from None
    first, *others = (one.axes for one in numbers.values())
    if all(axes == first for axes in others):
        return pandas.DataFrame(columns_of(first) | {name: flat(one) for name, one in numbers.items()})
    parts = [
        pandas.DataFrame({"name": name, **columns_of(one.axes), "value": flat(one)}) for name, one in numbers.items()
    ]
    return pandas.concat(parts, ignore_index=True)


def columns_of(axes: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The labels of each value, and the positions of tokens, which may be there twice."""
    places = np.indices([len(labels) for labels in axes.values()]).reshape(len(axes), -1)
    columns: dict[str, Any] = {}
    for (axis, labels), place in zip(axes.items(), places, strict=True):
        if axis in REPEATED:
            columns[f"{axis}_position"] = place
        columns[axis] = [labels[position] for position in place]
    return columns


def flat(one: Numbers) -> Any:
    return one.values.detach().cpu().flatten().numpy() if isinstance(one.values, Tensor) else one.values
