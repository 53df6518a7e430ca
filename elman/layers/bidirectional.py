"""Bidirectional layer: two causal layers, one from each end (Schuster & Paliwal, 1997)."""

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor

from elman import config as settings
from elman.cells import Cell
from elman.config import named
from elman.errors import ConfigError
from elman.layers.base import LAYERS, ParallelLayer, SequenceLayer, TwoWayLayer
from elman.layers.recurrent import Recurrent, example
from elman.ops import taps
from elman.ops.lookup import Lookup
from elman.recurrence import apart, explain_both, recur_both
from elman.registry import Traits
from elman.shapes import Lengths, Sequence, State


class Ends(NamedTuple):
    """Final (or initial) states: `forward` at the last real position of a row, `backward` at its first."""

    forward: State
    backward: State


@LAYERS.register("bidirectional")
class Bidirectional(TwoWayLayer, ParallelLayer):
    """Two causal layers of any type, one from each end of the text, joined (Schuster & Paliwal, 1997).

    With `lengths`, the backward pass of each row starts at its own end. Recordings under `backward` are in reading
    order, last position first; `reverse` restores text order.
    """

    traits: ClassVar = Traits(
        idea="each output depends on both the left and the right context",
        limitation="needs the whole text: no step form, no streaming, no left-to-right model",
        training="inside",
        stepping="none; it has no step form",
        state="inside; where each direction ended",
    )
    sites: ClassVar = {"joined": "both directions, joined: the output"}

    class Config(settings.Config):
        layer: str | dict[str, Any] = "lstm"
        """A causal layer by name, or with settings: {gru: {reset: before}}."""
        hidden_size: int = Field(0, ge=0)
        """Width of each direction; 0: the model's hidden_size."""
        weight_dropout: float = Field(0.0, ge=0, lt=1)
        """Weight dropout of the inner layer, if it supports it."""
        join: Literal["concat", "sum"] = "concat"
        """Concatenate both directions (twice as wide) or add them."""

        @field_validator("layer")
        @classmethod
        def _causal(cls, layer: str | dict[str, Any]) -> str | dict[str, Any]:
            name, _ = named(LAYERS, layer)
            if not LAYERS[name].causal:
                raise _not_causal(name)
            return layer

    def __init__(self, config: Config, input_size: int):
        super().__init__(config, input_size)
        self.inner, inner = named(LAYERS, config.layer)
        fill = {key: getattr(config, key) for key in ("hidden_size", "weight_dropout")}
        known = {key: value for key, value in fill.items() if key in type(inner).model_fields}
        inner = inner.model_copy(update={key: getattr(inner, key) or value for key, value in known.items()})
        cls: Any = LAYERS[self.inner]
        self.ahead: SequenceLayer = cls(inner, input_size)
        self.back: SequenceLayer = cls(inner, input_size)
        if not self.ahead.causal:
            raise _not_causal(self.inner)
        self.reads_tables = self.ahead.reads_tables
        self.output_size = self.ahead.output_size * (2 if config.join == "concat" else 1)

    def initial_state(self, batch: int) -> Ends:
        return Ends(self.ahead.initial_state(batch), self.back.initial_state(batch))

    def run(self, x: Sequence | Lookup, state: Ends, lengths: Lengths | None) -> tuple[Sequence, Ends]:
        cells = self._cells()
        if cells and isinstance(x, Tensor) and not apart(*cells, x, lengths):
            with cells[0].dropping(), cells[1].dropping():
                (ahead, last), (back, first) = recur_both(*cells, x, state, lengths)
        else:
            with taps.scope(f"forward.{self.inner}"):
                ahead, last = self.ahead(x, state.forward, lengths)
            with taps.scope(f"backward.{self.inner}"):
                back, first = self.back(reverse(x, lengths), state.backward, lengths)
            back = reverse(back, lengths)
        joined = torch.cat([ahead, back], dim=-1) if self.config.join == "concat" else ahead + back
        return taps.tap("joined", joined), Ends(last, first)

    def _cells(self) -> tuple[Cell, Cell] | None:
        """The cells of both directions, if each is a single recurrent layer."""
        if isinstance(self.ahead, Recurrent) and isinstance(self.back, Recurrent):
            return self.ahead.cell, self.back.cell
        return None

    def explain(self, batch: int, time: int, ragged: bool = False) -> str:
        """The selected implementation of the inner layers, and why; for kernels, whether both directions share a
        launch."""
        if cells := self._cells():
            return f"both ways: {explain_both(*cells, *example(self.ahead, batch, time, ragged))}"
        inner: Any = getattr(self.ahead, "explain", None)
        return f"both ways: {inner(batch, time, ragged)}" if inner else f"both ways: {self.inner}"


def reverse(x: Any, lengths: Lengths | None = None) -> Any:
    """Reverses the real positions of each row (batch, time, ...); padding stays in place."""
    if isinstance(x, Lookup):
        return replace(x, rows=reverse(x.rows, lengths))
    if lengths is None:
        return x.flip(1)
    places = torch.arange(x.shape[1], device=x.device)
    lengths = lengths.to(x.device).unsqueeze(1)
    places = torch.where(places < lengths, lengths - 1 - places, places)
    return x[torch.arange(len(x), device=x.device).unsqueeze(1), places]


def _not_causal(name: str) -> ConfigError:
    causal = ", ".join(name for name in LAYERS if LAYERS[name].causal)
    return ConfigError(f"bidirectional: layer {name!r} is already bidirectional; use one of {causal}")
