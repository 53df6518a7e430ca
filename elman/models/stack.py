"""A stack of sequence layers: deep recurrent networks and residual blocks (Transformer style) from one config."""

from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elman.config import Config, named
from elman.errors import ConfigError
from elman.layers import LAYERS, SequenceLayer, two_way
from elman.limits import check_limit
from elman.ops.dropout import locked_dropout
from elman.ops.lookup import Lookup
from elman.ops.norms import RMSNorm
from elman.ops.taps import listening, scope
from elman.registry import Registry
from elman.shapes import Lengths, Sequence, State, Step

LayerSpec = dict[str, dict[str, Any]]  # {layer name: its settings}
RANDOM_INIT = {Tensor.normal_, Tensor.uniform_}


class StackConfig(Config):
    """Settings of a stack of layers with token embeddings."""

    both_sides: ClassVar[bool] = False  # whether bidirectional layers are allowed
    known: ClassVar[Registry[SequenceLayer]] = LAYERS  # registry of the allowed layers

    type: Literal["stack"] = "stack"
    """Model type: a stack of sequence layers."""
    pattern: list[LayerSpec] = Field([{"lstm": {}}])
    """Layers from bottom to top, by name, with settings if needed: [lstm, {gru: {reset: before}}]."""
    num_layers: int = Field(0, ge=0)
    """Number of layers: the pattern is repeated to this length; 0 uses it once."""
    hidden_size: int = Field(256, ge=1)
    """Width of every layer that does not set its own."""
    embedding_size: int = Field(0, ge=0)
    """Width of the token embeddings; 0: hidden_size."""
    embedding_scale: float = Field(1.0, ge=0)
    """Factor on token embeddings at the input; 0: √width, which gives tied embeddings, initialized small for the output
    layer, units of about one (Vaswani et al., 2017)."""
    vectors: str = ""
    """File of pretrained word vectors to begin with: GloVe, word2vec (text or binary) or fastText's .vec; they decide
    embedding_size. Empty: random vectors."""
    freeze_vectors: bool = False
    """Keep the word vectors as they are; false: tune them with the rest of the model."""
    normalize_vectors: bool = True
    """Subtract from the vectors of the file their mean, often most of each, and scale them as random ones are; frozen
    ones to variance 1. False: as they are in the file."""
    tied_embeddings: bool = True
    """Use the embeddings as output weights too (Press and Wolf, 2017); needs a top layer as wide as the embeddings."""
    output_bias: bool = True
    """Bias of each token in the output layer."""
    residual: bool = False
    """Residual connections around layers."""
    norm: Literal["none", "pre", "post"] = "none"
    """Normalization before each layer (and once at the top), after it, or none."""
    norm_type: Literal["layer", "rms"] = "layer"
    """Layer norm, or RMS norm (root mean square, without mean and bias)."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """Epsilon in the denominator of norms."""
    positions: Literal["none", "learned", "sinusoidal"] = "none"
    """Position embeddings added to the token embeddings; attention layers have positional settings of their own."""
    max_positions: int = Field(1024, ge=1)
    """Size of the table of learned positions; longer sequences wrap around."""
    embedding_norm: bool = False
    """Normalize the token embeddings, after positions are added."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout between layers; with residual connections, on each layer's output before it is added."""
    input_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on the token embeddings; null: dropout."""
    output_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on the top layer's output; null: dropout."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Embedding dropout: share of words whose whole embedding is dropped (Gal and Ghahramani, 2016)."""
    weight_dropout: float = Field(0.0, ge=0, lt=1)
    """Weight dropout (DropConnect) on recurrent weights, per sequence (Merity et al., 2018)."""
    locked_dropout: bool = True
    """Locked (variational) dropout: one mask for all time steps instead of one per step."""

    @model_validator(mode="after")
    def _frozen_vectors_are_given(self) -> "StackConfig":
        if self.freeze_vectors and not self.vectors:
            raise ValueError("freeze_vectors keeps vectors of a file: name it in vectors")
        return self

    @field_validator("pattern", mode="before")
    @classmethod
    def _entries(cls, pattern: Any) -> list[LayerSpec]:
        pattern = [pattern] if isinstance(pattern, str | dict) else pattern
        if not isinstance(pattern, list) or not pattern:
            raise ValueError("a pattern is a list of layer names, like [lstm, lstm]")
        return [cls._entry(item) for item in pattern]

    @classmethod
    def _entry(cls, item: Any) -> LayerSpec:
        name, config = named(cls.known, item, where="model.pattern")
        if not cls.known[name].causal and not cls.both_sides:
            raise two_way(name)
        return {name: config.model_dump(mode="json", exclude_unset=True)}

    def layers(self) -> list[tuple[str, Config]]:
        """Every layer from bottom to top, its settings completed by the stack's."""
        result: list[tuple[str, Config]] = []
        for entry in islice(cycle(self.pattern), self.num_layers or len(self.pattern)):
            ((name, settings),) = entry.items()
            known = self.known[name].Config.model_fields
            settings = {"weight_dropout": self.weight_dropout, **settings}
            settings["hidden_size"] = settings.get("hidden_size") or self.hidden_size  # 0: the stack's width
            settings = {key: value for key, value in settings.items() if key in known}
            result.append((name, self.known[name].Config.make(settings, where=f"model.pattern.{name}")))
        if self.weight_dropout and not any(hasattr(config, "weight_dropout") for _, config in result):
            names = ", ".join(dict.fromkeys(name for name, _ in result))
            raise ConfigError(
                f"model.weight_dropout: {names} does not support it; use a cell as layer, like pattern: [lstm], or set "
                "it on the cell: {recurrent: {cell: {lstm: {weight_dropout: 0.5}}}}"
            )
        return result


class TransformerConfig(StackConfig):
    """Other defaults, those of a Transformer."""

    positions: Literal["none", "learned", "sinusoidal"] = "learned"
    """Position embeddings added to the token embeddings; without them attention cannot tell masked positions apart."""
    residual: bool = True
    """Residual connections around layers."""
    norm: Literal["none", "pre", "post"] = "pre"
    """Normalization before each layer (and once at the top), after it, or none."""


def make_norm(config: StackConfig, width: int) -> nn.Module:
    cls = RMSNorm if config.norm_type == "rms" else nn.LayerNorm
    return cls(width, eps=config.norm_epsilon)


class Block(nn.Module):
    """A layer with its norm and residual connection."""

    def __init__(self, name: str, layer: SequenceLayer, config: StackConfig):
        super().__init__()
        self.kind, self.layer = name, layer
        self.residual, self.norm_first = config.residual and layer.wrapped, config.norm == "pre"
        width = layer.input_size if self.norm_first else layer.output_size
        self.norm = make_norm(config, width) if config.norm != "none" and layer.wrapped else None
        if self.residual and layer.input_size != layer.output_size:
            raise ConfigError(
                f"residual connections need layers as wide as their input, but {name} maps {layer.input_size} to "
                f"{layer.output_size}; give embeddings (model.embedding_size) and all layers the same width"
            )

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.norm is not None and self.norm_first else x

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        y = x + y if self.residual else y
        return self.norm(y) if self.norm is not None and not self.norm_first else y


class Stack(nn.Module):
    """Layers on top of each other; the state is the tuple of their states. Obeys the laws of a sequence layer."""

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

    @property
    def reads_tables(self) -> bool:
        """Whether the first layer does, and nothing else reads the inputs."""
        first = next(iter(self.blocks()), None)
        changed = self.positions is not None or self.bottom_norm is not None
        return (
            not changed and first is not None and first.layer.reads_tables and not (first.norm_first or first.residual)
        )

    def forward(
        self, x: Sequence | Lookup, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Sequence, State]:
        return self._run(x, self.initial_state(len(x)) if state is None else state, lengths)

    def step(self, x: Step, state: State) -> tuple[Step, State]:
        """Output of the top layer for one more token, and the next states."""
        return self._run(x, state)

    def _run(self, x: Any, state: State, *lengths: Lengths | None) -> tuple[Tensor, State]:
        """A whole sequence, with dropout, or without `lengths` one step."""
        new: list[State] = []
        if self.positions is not None:
            x, place = (self.positions if lengths else self.positions.step)(x, state[0], *lengths)
            state, new = state[1:], [place]
        x = x if self.bottom_norm is None else self.bottom_norm(x)
        for index, block in enumerate(self.blocks()):
            if lengths and index and not block.residual:
                x = self.drop(x, self.config.dropout)
            layer = block.layer if lengths else block.layer.step
            y, part = _scoped(index, block, layer, block.before(x), state[index], *lengths)
            if lengths and block.residual:
                y = self.drop(y, self.config.dropout)  # not on the residual branch
            x = block.after(x, y)
            new.append(part)
        return x if self.top_norm is None else self.top_norm(x), tuple(new)

    def drop_input(self, x: Sequence) -> Sequence:
        """Dropout on the embeddings."""
        return self.drop(x, self.config.dropout if self.config.input_dropout is None else self.config.input_dropout)

    def drop_output(self, x: Sequence) -> Sequence:
        """Dropout on the top layer's output."""
        return self.drop(x, self.config.dropout if self.config.output_dropout is None else self.config.output_dropout)

    def drop(self, x: Sequence, share: float) -> Sequence:
        """Dropout between layers; locked dropout draws one mask for all time steps."""
        if self.config.locked_dropout:
            return locked_dropout(x, share, self.training)
        return nn.functional.dropout(x, share, self.training)

    def blocks(self) -> Iterable[Block]:
        """The blocks from bottom to top."""
        return self.layers  # type: ignore[return-value]


def _positions(config: StackConfig, width: int) -> Any:
    if config.positions == "none":
        return None
    layer: Any = LAYERS["positions"]
    scale = (config.embedding_scale or width**0.5) * width**-0.5  # the scale of the token embeddings
    return layer(layer.Config(kind=config.positions, context=config.max_positions, scale=scale), width)


def _scoped(index: int, block: Block, function: Any, *arguments: Any) -> tuple[Tensor, State]:
    if not listening():
        return function(*arguments)
    with scope(f"layers.{index}.{block.kind}"):
        return function(*arguments)


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(build: Any) -> Any:
    """Build on the meta device, without memory: to count parameters or infer shapes."""
    with torch.device("meta"), _SkipRandomInit():
        return build()


def check_size(model: nn.Module, memory: bool = False) -> None:
    """Rejects a model that has too many weights, or with `memory` that does not fit in this machine."""
    tensors = [*model.parameters(), *model.buffers()]
    size, space = (sum(map(of, tensors)) for of in (Tensor.numel, lambda one: one.numel() * one.element_size()))
    check_limit("parameters", size, f"the model would have {size:,} weights", ConfigError)
    if memory:
        check_limit("memory", space, f"the weights of the model would take {space:,} bytes", ConfigError)


class _SkipRandomInit(TorchFunctionMode):
    """Skips random initialization on the meta device, where torch would import its compiler for each call, and counts
    it, so that a model of very many layers is rejected soon."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in RANDOM_INIT or getattr(function, "__module__", "") == nn.init.__name__:
            self.count += 1
            check_limit("tensors", self.count, f"the model would have {self.count} tensors or more", ConfigError)
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)
