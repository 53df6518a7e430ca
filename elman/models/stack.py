"""A stack of sequence layers: the classical deep recurrent network and the modern residual block are both recipes."""

from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from elman.config import Config
from elman.errors import ConfigError
from elman.layers import LAYERS, SequenceLayer, two_way
from elman.ops.dropout import locked_dropout
from elman.ops.taps import listening, scope
from elman.shapes import Lengths, Sequence, State, Step

Entry = dict[str, dict[str, Any]]  # {layer name: its settings}


class StackConfig(Config):
    """What a stack of layers needs to know; a language model adds its words."""

    type: Literal["stack"] = "stack"
    """Kind of model: a stack of sequence layers."""
    pattern: list[Entry] = Field(default_factory=lambda: list[Entry]([{"lstm": {}}]))
    """Layers from bottom to top, by name, each with its own settings if any: [lstm, {gru: {reset: before}}]."""
    num_layers: int = Field(0, ge=0)
    """How many layers: the pattern is repeated until there are that many; 0 takes the pattern once."""
    hidden_size: int = Field(256, ge=1)
    """Width of every layer that does not set its own."""
    embedding_size: int = Field(0, ge=0)
    """Width of the word vectors; 0 takes hidden_size."""
    tied_embeddings: bool = True
    """Use the word vectors as output weights too (Press and Wolf, 2017); needs the top as wide as the embedding."""
    residual: bool = False
    """Add each layer's input to its output."""
    norm: Literal["none", "pre", "post"] = "none"
    """Layer norm before each layer (and once at the top), after it, or not at all."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of units dropped between layers; with residual, of what each layer adds."""
    input_dropout: float | None = Field(None, ge=0, lt=1)
    """Share dropped from the word vectors; null takes dropout."""
    output_dropout: float | None = Field(None, ge=0, lt=1)
    """Share dropped from the top layer's output; null takes dropout."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of words whose whole vector is dropped (Gal and Ghahramani, 2016)."""
    weight_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of recurrent weights dropped for each sequence (Merity et al., 2018)."""
    locked_dropout: bool = True
    """One dropout mask for all time steps (variational), instead of a new one at each."""

    @field_validator("pattern", mode="before")
    @classmethod
    def _entries(cls, pattern: Any) -> list[Entry]:
        pattern = [pattern] if isinstance(pattern, str | dict) else pattern
        if not isinstance(pattern, list) or not pattern:
            raise ValueError("a pattern is a list of layer names, like [lstm, lstm]")
        return [_entry(item) for item in pattern]

    def layers(self) -> list[tuple[str, Config]]:
        """Every layer from bottom to top, with its own settings completed by the stack's."""
        result: list[tuple[str, Config]] = []
        for entry in islice(cycle(self.pattern), self.num_layers or len(self.pattern)):
            ((name, settings),) = entry.items()
            known = LAYERS[name].Config.model_fields
            settings = {"weight_dropout": self.weight_dropout, **settings}
            settings["hidden_size"] = settings.get("hidden_size") or self.hidden_size  # 0 is written for the stack's
            settings = {key: value for key, value in settings.items() if key in known}
            result.append((name, LAYERS[name].Config.make(settings, where=f"model.pattern.{name}")))
        if self.weight_dropout and not any(hasattr(config, "weight_dropout") for _, config in result):
            names = ", ".join(dict.fromkeys(name for name, _ in result))
            raise ConfigError(
                f"model.weight_dropout: {names} takes none; use a cell as layer, like pattern: [lstm], or give the "
                "cell its own: {recurrent: {cell: {lstm: {weight_dropout: 0.5}}}}"
            )
        return result


def _entry(item: Any) -> Entry:
    entry = {item: {}} if isinstance(item, str) else item
    if isinstance(entry, dict) and len(entry) == 1:
        ((name, settings),) = entry.items()
        if isinstance(name, str) and isinstance(settings, dict | None):
            if not LAYERS[name].causal:
                raise two_way(name)
            config = LAYERS[name].Config.make(settings, where=f"model.pattern.{name}")
            return {name: config.model_dump(mode="json", exclude_unset=True)}
    raise ValueError("each layer is a name, or one name with its settings: {lstm: {hidden_size: 64}}")


class Block(nn.Module):
    """A layer with the norm and the shortcut around it."""

    def __init__(self, name: str, layer: SequenceLayer, config: StackConfig):
        super().__init__()
        self.kind, self.layer = name, layer
        self.residual, self.norm_first = config.residual, config.norm == "pre"
        width = layer.input_size if self.norm_first else layer.output_size
        self.norm = nn.LayerNorm(width) if config.norm != "none" else None
        if self.residual and layer.input_size != layer.output_size:
            raise ConfigError(
                f"residual needs layers as wide as their input, but {name} maps {layer.input_size} to "
                f"{layer.output_size}; give word vectors (model.embedding_size) and all layers one width"
            )

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.norm is not None and self.norm_first else x

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        y = x + y if self.residual else y
        return self.norm(y) if self.norm is not None and not self.norm_first else y


class Stack(nn.Module):
    """Layers one above the other; its state is the tuple of theirs. Obeys the laws of a sequence layer."""

    def __init__(self, config: StackConfig, input_size: int):
        super().__init__()
        self.config, self.input_size = config, input_size
        blocks, width = [], input_size
        for name, settings in config.layers():
            layer = LAYERS[name](settings, width)
            blocks.append(Block(name, layer, config))
            width = layer.output_size
        self.layers = nn.ModuleList(blocks)
        self.output_size = width
        self.top_norm = nn.LayerNorm(width) if config.norm == "pre" else None

    def initial_state(self, batch: int) -> State:
        return tuple(block.layer.initial_state(batch) for block in self.blocks())

    def forward(
        self, x: Sequence, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, State]:
        state = self.initial_state(len(x)) if state is None else state
        new: list[State] = []
        for index, block in enumerate(self.blocks()):
            if index and not block.residual:
                x = self.drop(x, self.config.dropout)
            y, part = _scoped(index, block, block.layer, block.before(x), state[index], lengths)
            if block.residual:
                y = self.drop(y, self.config.dropout)  # the shortcut stays whole
            x = block.after(x, y)
            new.append(part)
        return self._top(x), tuple(new)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        new: list[State] = []
        for index, block in enumerate(self.blocks()):
            y, part = _scoped(index, block, block.layer.step, block.before(x), state[index])
            x = block.after(x, y)
            new.append(part)
        return self._top(x), tuple(new)

    def drop(self, x: Sequence, share: float) -> Sequence:
        if self.config.locked_dropout:
            return locked_dropout(x, share, self.training)
        return nn.functional.dropout(x, share, self.training)

    def _top(self, x: Tensor) -> Tensor:
        return x if self.top_norm is None else self.top_norm(x)

    def blocks(self) -> Iterable[Block]:
        """Layers with what is around them, from bottom to top."""
        return self.layers  # type: ignore[return-value]


def _scoped(index: int, block: Block, function: Any, *arguments: Any) -> tuple[Tensor, State]:
    if not listening():
        return function(*arguments)
    with scope(f"layers.{index}.{block.kind}"):
        return function(*arguments)


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(build: Any) -> Any:
    """Build without memory: for counting parameters before deciding."""
    with torch.device("meta"):
        return build()
