"""Recurrent layers: one around each registered cell, of the same name, and several of one cell as one layer."""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from elman import config as settings
from elman.cells import CELLS, Cell
from elman.config import named
from elman.errors import ConfigError, line_of
from elman.layers.base import LAYERS, ParallelLayer, SequenceLayer
from elman.ops import taps
from elman.ops.dropout import locked_dropout
from elman.ops.lookup import Lookup
from elman.recurrence import explain, recur
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, State, Step


class Recurrent(ParallelLayer):
    """A cell over time. A subclass is created for each registered cell."""

    cell_class: ClassVar[type[Cell]]
    reads_tables = True

    def __init__(self, config: Cell.Config, input_size: int):
        super().__init__(config, input_size)
        try:
            self.cell = self.cell_class(config, input_size)
        except TypeError as problem:
            raise ConfigError(f"cell {self.name!r} cannot be built: {problem}{line_of(problem)}") from problem
        self.output_size = self.cell.hidden_size

    def initial_state(self, batch: int) -> State:
        return self.cell.initial_state(batch)

    def run(self, x: Sequence | Lookup, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
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


@LAYERS.register("recurrent")
class RecurrentStack(ParallelLayer):
    """One or more layers of any cell, with dropout in between."""

    traits: ClassVar = Traits(
        idea="several layers of one cell as one layer",
        limitation="as its cell; layers run one after another",
        training="inside; one step after another",
        stepping="inside",
        state="inside",
    )

    class Config(settings.Config):
        cell: str | dict[str, Any] = "lstm"
        """A cell by name, or with settings: {gru: {reset: before}}."""
        hidden_size: int = Field(0, ge=0)
        """Width of the state; 0: the model's hidden_size."""
        num_layers: int = Field(1, ge=1)
        """Number of layers."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """Locked (variational) dropout between layers: one mask per row for all time steps."""

        @field_validator("cell")
        @classmethod
        def _known(cls, cell: str | dict[str, Any]) -> str | dict[str, Any]:
            named(CELLS, cell)
            return cell

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        name, own = named(CELLS, config.cell)
        width = own.plain()["hidden_size"] or config.hidden_size or input_size
        own = own.model_copy(update={"hidden_size": width})
        sizes = [input_size] + [width] * (config.num_layers - 1)
        self.layers = nn.ModuleList(LAYERS[name](own, size) for size in sizes)
        self.output_size = width

    def initial_state(self, batch: int) -> State:
        return tuple(layer.initial_state(batch) for layer, _ in self._scoped())

    def run(self, x: Sequence, state: State, lengths: Lengths | None) -> tuple[Sequence, State]:
        return self._run(x, state, lengths)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        return self._run(x, state)

    def _run(self, x: Tensor, state: State, *lengths: Lengths | None) -> tuple[Tensor, State]:
        """A whole sequence, with dropout, or without `lengths` one step."""
        after: list[State] = []
        for (layer, scope), past in zip(self._scoped(), state, strict=True):
            x = locked_dropout(x, self.config.dropout, self.training) if after and lengths else x
            with taps.scope(scope):
                x, new = (layer if lengths else layer.step)(x, past, *lengths)
            after.append(new)
        return x, tuple(after)

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """Which form of the recurrence each layer would take, and why."""
        return "\n".join(f"{scope}: {layer.explain(batch, time, ragged)}" for layer, scope in self._scoped())

    def _scoped(self) -> Iterator[tuple[Recurrent, str]]:
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Recurrent)
            yield layer, f"{index}.{layer.name}"
