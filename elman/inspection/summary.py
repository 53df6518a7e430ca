"""Summary of a model: its layers with their shapes and parameters, as a table for terminals, notebooks and pandas."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from elman.figures.render_html import table
from elman.inspection.result import Numbers, data_frame
from elman.layers import SequenceLayer

if TYPE_CHECKING:
    from pandas import DataFrame

HEADS = ("part", "kind", "shape", "parameters")


class Part(NamedTuple):
    """A layer, or another module with parameters of its own."""

    name: str
    kind: str
    shape: str
    parameters: int  # that no part above has: tied weights count once


@dataclass(frozen=True)
class Summary:
    """`model.summary()`: it prints itself; `.parts` and `.frame()` have the numbers."""

    title: str
    parts: list[Part]

    @property
    def parameters(self) -> int:
        """Of all parts."""
        return sum(part.parameters for part in self.parts)

    def frame(self) -> "DataFrame":
        """One row for each part, as a pandas DataFrame."""
        columns = zip(*self.parts, strict=True) if self.parts else [()] * len(HEADS)
        axes = {"number": range(len(self.parts))}
        return data_frame({name: Numbers([*column], axes) for name, column in zip(HEADS, columns, strict=True)})

    def __str__(self) -> str:
        rows = [HEADS, *((*part[:3], f"{part.parameters:,}") for part in self.parts)]
        wide = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
        lines = (
            "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], wide, strict=False)), row[3].rjust(wide[3])])
            for row in rows
        )
        return "\n".join([self.title, "", *(line.rstrip() for line in lines), f"{self.parameters:,} parameters"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table(self.title, HEADS, [(*part[:3], f"{part.parameters:,}") for part in self.parts], "words")


def parts_of(model: nn.Module, name: str = "", seen: set[int] | None = None) -> Iterator[Part]:
    """From bottom to top: each layer as one part, and what lies around the layers."""
    seen = set() if seen is None else seen
    layer = isinstance(model, SequenceLayer)
    own = [*model.parameters(recurse=layer)]
    if layer or own:
        new = [parameter for parameter in own if id(parameter) not in seen]
        seen |= {id(parameter) for parameter in own}
        kind = getattr(model, "name", type(model).__name__.lower()) + ("" if new or not own else ", tied")
        shapes = (" × ".join(map(str, parameter.shape)) for parameter in own if parameter.dim() > 1 or len(own) == 1)
        shape = f"{model.input_size} → {model.output_size}" if isinstance(model, SequenceLayer) else ", ".join(shapes)
        yield Part(name or "model", kind, shape, sum(parameter.numel() for parameter in new))
    if not layer:
        for child, module in model.named_children():
            yield from parts_of(module, f"{name}.{child}".lstrip("."), seen)
