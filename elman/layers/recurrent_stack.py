"""Several recurrent layers of one kind as one layer: any cell by name, dropout in between."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field, field_validator
from torch import nn

from elman import config as settings
from elman.cells import CELLS, Cell
from elman.errors import ConfigError
from elman.layers.base import LAYERS, SequenceLayer
from elman.layers.recurrent import Recurrent
from elman.ops import taps
from elman.ops.dropout import locked_dropout
from elman.shapes import Lengths, Sequence, State, Step


@LAYERS.register("recurrent")
class RecurrentStack(SequenceLayer):
    """Any cell, one or more layers of it, with dropout in between."""

    class Config(settings.Config):
        cell: str | dict[str, Any] = "lstm"
        """A cell by name, or with its settings: {gru: {reset: before}}."""
        hidden_size: int = Field(0, ge=0)
        """Width of the state; 0 takes the model's hidden_size."""
        num_layers: int = Field(1, ge=1)
        """How many layers stand on each other."""
        dropout: float = Field(0.0, ge=0, lt=1)
        """Share of units dropped between layers in training, the same ones at all times of a row."""

        @field_validator("cell")
        @classmethod
        def _known(cls, cell: str | dict[str, Any]) -> str | dict[str, Any]:
            cell_settings(cell)
            return cell

    def __init__(self, config: Config, input_size: int):
        super().__init__()
        name, settings = cell_settings(config.cell)
        settings = settings.model_copy(update={"hidden_size": settings.hidden_size or config.hidden_size or input_size})
        sizes = [input_size] + [settings.hidden_size] * (config.num_layers - 1)
        self.layers = nn.ModuleList(LAYERS[name](settings, size) for size in sizes)
        self.dropout = config.dropout
        self.input_size, self.output_size = input_size, settings.hidden_size

    def initial_state(self, batch: int) -> State:
        return tuple(layer.initial_state(batch) for layer, _ in self._scoped())

    def forward(
        self, x: Sequence, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, State]:
        after = []
        for index, (layer, scope) in enumerate(self._scoped()):
            x = x if index == 0 else locked_dropout(x, self.dropout, self.training)
            with taps.scope(scope):
                x, new = layer(x, None if state is None else state[index], lengths)
            after.append(new)
        return x, tuple(after)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        after = []
        for (layer, scope), past in zip(self._scoped(), state, strict=True):
            with taps.scope(scope):
                x, new = layer.step(x, past)
            after.append(new)
        return x, tuple(after)

    def explain(self, batch: int, time: int) -> str:
        """Which form of the recurrence each layer would take, and why."""
        return "\n".join(f"{scope}: {layer.explain(batch, time)}" for layer, scope in self._scoped())

    def _scoped(self) -> Iterator[tuple[Recurrent, str]]:
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Recurrent)
            yield layer, f"{index}.{layer.name}"


def cell_settings(cell: str | dict[str, Any]) -> tuple[str, Cell.Config]:
    """The name and the settings of `lstm`, `{lstm: {...}}` or `{type: lstm, ...}`."""
    if isinstance(cell, str):
        name, given = cell, {}
    elif "type" in cell:
        given = dict(cell)
        name = given.pop("type")
    elif len(cell) == 1:
        [(name, given)] = cell.items()
    else:
        raise ConfigError(
            f"cell: expected a name or one name with its settings, {{gru: {{reset: before}}}}, got {cell}"
        )
    return name, CELLS[name].Config.make(given, where=f"cell.{name}")
