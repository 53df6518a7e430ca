"""A stack of sequence layers: the classical deep recurrent network and the modern residual block are both recipes."""

from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elman.config import Config, named
from elman.errors import ConfigError
from elman.layers import LAYERS, SequenceLayer, two_way
from elman.ops.dropout import locked_dropout
from elman.ops.norms import RMSNorm
from elman.ops.taps import listening, scope
from elman.registry import Registry
from elman.shapes import Lengths, Sequence, State, Step

Entry = dict[str, dict[str, Any]]  # {layer name: its settings}
DRAWS = {Tensor.normal_, Tensor.uniform_}


class StackConfig(Config):
    """What a stack of layers needs to know; a language model adds its words."""

    both_sides: ClassVar[bool] = False  # whether layers that see both sides of a position may stand in it
    known: ClassVar[Registry[SequenceLayer]] = LAYERS  # the layers that may stand in it, by name

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
    embedding_scale: float = Field(1.0, ge=0)
    """What word vectors are multiplied by on their way in; 0 takes √width, so that tied vectors, which are small for
    the sake of the output, enter with units of about one (Vaswani et al., 2017)."""
    tied_embeddings: bool = True
    """Use the word vectors as output weights too (Press and Wolf, 2017); needs the top as wide as the embedding."""
    output_bias: bool = True
    """Whether each word has a bias in the output."""
    residual: bool = False
    """Add each layer's input to its output."""
    norm: Literal["none", "pre", "post"] = "none"
    """Norm before each layer (and once at the top), after it, or not at all."""
    norm_type: Literal["layer", "rms"] = "layer"
    """Layer norm, or root-mean-square norm: without mean and bias."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """What keeps a norm from dividing by nothing."""
    positions: Literal["none", "learned", "sinusoidal"] = "none"
    """What is added to the word vectors to tell their place; attention can also see places by its own settings."""
    max_positions: int = Field(1024, ge=1)
    """Places in the table of learned positions; after the last comes the first again."""
    embedding_norm: bool = False
    """A norm on the word vectors, after their positions are added."""
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
        return [cls._entry(item) for item in pattern]

    @classmethod
    def _entry(cls, item: Any) -> Entry:
        name, config = named(cls.known, item, where="model.pattern")
        if not cls.known[name].causal and not cls.both_sides:
            raise two_way(name)
        return {name: config.model_dump(mode="json", exclude_unset=True)}

    def layers(self) -> list[tuple[str, Config]]:
        """Every layer from bottom to top, with its own settings completed by the stack's."""
        result: list[tuple[str, Config]] = []
        for entry in islice(cycle(self.pattern), self.num_layers or len(self.pattern)):
            ((name, settings),) = entry.items()
            known = self.known[name].Config.model_fields
            settings = {"weight_dropout": self.weight_dropout, **settings}
            settings["hidden_size"] = settings.get("hidden_size") or self.hidden_size  # 0 is written for the stack's
            settings = {key: value for key, value in settings.items() if key in known}
            result.append((name, self.known[name].Config.make(settings, where=f"model.pattern.{name}")))
        if self.weight_dropout and not any(hasattr(config, "weight_dropout") for _, config in result):
            names = ", ".join(dict.fromkeys(name for name, _ in result))
            raise ConfigError(
                f"model.weight_dropout: {names} takes none; use a cell as layer, like pattern: [lstm], or give the "
                "cell its own: {recurrent: {cell: {lstm: {weight_dropout: 0.5}}}}"
            )
        return result


def make_norm(config: StackConfig, width: int) -> nn.Module:
    kind = RMSNorm if config.norm_type == "rms" else nn.LayerNorm
    return kind(width, eps=config.norm_epsilon)


class Block(nn.Module):
    """A layer with the norm and the shortcut around it."""

    def __init__(self, name: str, layer: SequenceLayer, config: StackConfig):
        super().__init__()
        self.kind, self.layer = name, layer
        self.residual, self.norm_first = config.residual and layer.wrapped, config.norm == "pre"
        width = layer.input_size if self.norm_first else layer.output_size
        self.norm = make_norm(config, width) if config.norm != "none" and layer.wrapped else None
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
        self.positions = _positions(config, input_size)
        self.bottom_norm = make_norm(config, input_size) if config.embedding_norm else None
        blocks, width = [], input_size
        for name, settings in config.layers():
            layer = config.known[name](settings, width)
            blocks.append(Block(name, layer, config))
            width = layer.output_size
        self.layers = nn.ModuleList(blocks)
        self.output_size = width
        self.top_norm = make_norm(config, width) if config.norm == "pre" else None

    def initial_state(self, batch: int) -> State:
        """States of all layers before the first token."""
        own = () if self.positions is None else (self.positions.initial_state(batch),)
        return *own, *(block.layer.initial_state(batch) for block in self.blocks())

    def forward(
        self, x: Sequence, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, State]:
        state = self.initial_state(len(x)) if state is None else state
        x, state, new = self._bottom(x, state, lengths)
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
        """Output of the top layer for one more token, and the next states."""
        x, state, new = self._bottom(x, state)
        for index, block in enumerate(self.blocks()):
            y, part = _scoped(index, block, block.layer.step, block.before(x), state[index])
            x = block.after(x, y)
            new.append(part)
        return self._top(x), tuple(new)

    def drop(self, x: Sequence, share: float) -> Sequence:
        """Dropout between layers; locked dropout draws one mask for all time steps."""
        if self.config.locked_dropout:
            return locked_dropout(x, share, self.training)
        return nn.functional.dropout(x, share, self.training)

    def _bottom(self, x: Tensor, state: State, *lengths: Lengths | None) -> tuple[Tensor, State, list[State]]:
        """What comes before the layers; gives their states, and a list that begins with its own new one."""
        new: list[State] = []
        if self.positions is not None:
            x, place = (self.positions if lengths else self.positions.step)(x, state[0], *lengths)
            state, new = state[1:], [place]
        return x if self.bottom_norm is None else self.bottom_norm(x), state, new

    def _top(self, x: Tensor) -> Tensor:
        return x if self.top_norm is None else self.top_norm(x)

    def blocks(self) -> Iterable[Block]:
        """Layers with what is around them, from bottom to top."""
        return self.layers  # type: ignore[return-value]


def _positions(config: StackConfig, width: int) -> Any:
    if config.positions == "none":
        return None
    kind: Any = LAYERS["positions"]
    scale = (config.embedding_scale or width**0.5) * width**-0.5  # as large as the word vectors they are added to
    return kind(kind.Config(kind=config.positions, context=config.max_positions, scale=scale), width)


def _scoped(index: int, block: Block, function: Any, *arguments: Any) -> tuple[Tensor, State]:
    if not listening():
        return function(*arguments)
    with scope(f"layers.{index}.{block.kind}"):
        return function(*arguments)


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(build: Any) -> Any:
    """Build without memory: for counting parameters before deciding."""
    with torch.device("meta"), _Undrawn():
        return build()


class _Undrawn(TorchFunctionMode):
    """Initial values are left out: where no memory is, torch would ask its compiler about each, and import it."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in DRAWS or getattr(function, "__module__", "") == nn.init.__name__:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)
