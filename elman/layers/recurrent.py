"""The generic recurrent layer around a cell; every registered cell becomes a layer of the same name."""

from typing import ClassVar

import torch

from elman.cells import CELLS, Cell
from elman.errors import ConfigError, line_of
from elman.layers.base import LAYERS, SequenceLayer
from elman.ops import taps
from elman.recurrence import explain, recur
from elman.shapes import Lengths, Sequence, State, Step


class Recurrent(SequenceLayer):
    """A cell over time. A subclass is created for each registered cell."""

    cell_class: ClassVar[type[Cell]]

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__()
        try:
            self.cell = self.cell_class(config, input_size)
        except TypeError as problem:
            raise ConfigError(f"cell {self.name!r} cannot be built: {problem}{line_of(problem)}") from problem
        self.input_size, self.output_size = input_size, self.cell.hidden_size

    def initial_state(self, batch: int) -> State:
        return self.cell.initial_state(batch)

    def forward(
        self, x: Sequence, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, State]:
        state = self.initial_state(len(x)) if state is None else state
        with self.cell.dropping():
            return recur(self.cell, x, state, lengths)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        with taps.stepping():
            return self.cell.step(self.cell.drive(x), state)

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """The selected form of the recurrence for such a batch, and why."""
        return explain(self.cell, *example(self, batch, time, ragged))


def example(layer: SequenceLayer, batch: int, time: int, ragged: bool) -> tuple[Sequence, Lengths | None]:
    """An example batch for `explain`; ragged: with padding."""
    x = next(layer.parameters()).new_empty(batch, time, layer.input_size)
    return x, torch.full((batch,), time - 1) if ragged else None


def _layer_of(name: str, cell: type[Cell]) -> None:
    shared = {"cell_class": cell, "Config": cell.Config, "traits": cell.traits}
    shared |= {"__doc__": cell.__doc__, "__module__": cell.__module__}
    layer = type(cell.__name__, (Recurrent,), shared)
    LAYERS.register(name)(layer)


CELLS.follow(_layer_of)
