"""The interface of a Hugging Face architecture: settings, and a mapping of weights in both directions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from elman.models.hugging_face.folder import ConfigReader
from elman.registry import Registry


@dataclass(frozen=True)
class WeightMapping:
    """One of our weights."""

    ours: str
    theirs: tuple[str, ...]  # concatenated along the first dimension, in this order
    sizes: tuple[int, ...] = ()  # of the parts; empty: equal
    transposed: bool = False  # theirs are (input, output)

    def join(self, read: Callable[[str], Tensor]) -> Tensor:
        """Our weight from theirs."""
        parts = [read(name) for name in self.theirs]
        return torch.cat([part.T if self.transposed else part for part in parts])

    def split(self, weight: Tensor) -> dict[str, Tensor]:
        """Their weights from ours."""
        parts = weight.split(self.sizes) if self.sizes else weight.chunk(len(self.theirs))
        return {
            name: (part.T if self.transposed else part).contiguous()
            for name, part in zip(self.theirs, parts, strict=True)
        }


def linear(
    ours: str, *theirs: str, bias: bool = True, sizes: tuple[int, ...] = (), transposed: bool = False
) -> Iterator[WeightMapping]:
    """Weight and bias of a layer, by the names of the modules."""
    yield WeightMapping(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), sizes, transposed)
    if bias:
        yield WeightMapping(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), sizes)


class Key(NamedTuple):
    """A key of config.json, and our setting of the same meaning."""

    theirs: str
    ours: str  # a setting of the model, `0.name` of the first layer of each block, `1.name` of the second; or `blocks`
    default: Any  # its type is that of all values; or a function of our settings that were read before
    choices: Mapping[str, str] = {}  # their values and ours, if the value is one of several names


class Family(ABC):
    """A bijective mapping between our settings and weights and theirs."""

    name: ClassVar[str]  # their model_type
    architecture: ClassVar[str]  # their model class
    loader: ClassVar[str] = "AutoModelForCausalLM"
    model: ClassVar[str] = "stack"  # our model type
    prefix: ClassVar[str]  # of all weight names but the head's; missing in folders of base models
    block: ClassVar[tuple[str, ...]]  # our layers that make up one of their blocks
    buffers: ClassVar[str] = r"(?!)"  # pattern of tensors that are computed or unused
    tied: ClassVar[Mapping[str, str]]  # head weight, and what it is tied to by default; some folders store both
    older: ClassVar[tuple[tuple[str, str], ...]] = ()  # (current, older) parts of weight names
    keys: ClassVar[tuple[Key, ...]]
    fixed: ClassVar[dict[str, Any]]  # our settings that are always the same, by the names of `Key.ours`

    def settings(self, reader: ConfigReader) -> dict[str, Any]:
        """All settings of our model, from their config.json."""
        found = {"residual": True, **self.fixed}
        for theirs, ours, default, choices in self.keys:
            usual = default(found) if callable(default) else default
            found[ours] = reader.choice(theirs, choices, usual) if choices else reader.value(theirs, usual)
        found |= self.check(reader, found)
        layers = [
            {layer: {key[2:]: value for key, value in found.items() if key.startswith(f"{index}.")}}
            for index, layer in enumerate(self.block)
        ]
        own = {key: value for key, value in found.items() if "." not in key and key != "blocks"}
        return {**own, "pattern": layers, "num_layers": len(layers) * found["blocks"]}

    def describe(self, model: Any) -> dict[str, Any]:
        """Their config.json for our model; reading it back with `settings` shows what cannot be expressed."""
        blocks = len(model.stack.layers) // len(self.block)
        found = {**model.config.plain(), "hidden_size": model.stack.input_size, "blocks": blocks}
        if found["input_dropout"] is None:
            found["input_dropout"] = found["dropout"]
        for index, layer in enumerate(layer_settings(model)[: len(self.block)]):
            found |= {f"{index}.{name}": value for name, value in layer.items()}
        theirs = {}
        for key in self.keys:
            names = {ours: theirs for theirs, ours in [*key.choices.items()][::-1]}  # of several, the first is written
            theirs[key.theirs] = names.get(found[key.ours], found[key.ours]) if names else found[key.ours]
        return {**theirs, **self.describe_rest(model, found)}

    def rows(self, model: Any) -> Iterator[WeightMapping]:
        """The mapping of every weight of our model."""
        yield from self.body(model)
        if not model.config.tied_embeddings:
            yield from self.untied_head(model)

    @abstractmethod
    def check(self, reader: ConfigReader, found: dict[str, Any]) -> dict[str, Any]:
        """Reads all keys that are not in `keys`; returns further settings, by the names of `Key.ours`."""

    def describe_rest(self, model: Any, found: dict[str, Any]) -> dict[str, Any]:
        """What config.json contains beyond `keys`, from our model and its settings by the names of `Key.ours`."""
        return {}

    @abstractmethod
    def body(self, model: Any) -> Iterator[WeightMapping]:
        """The mapping of all weights but those of an output projection of its own."""

    def untied_head(self, model: Any) -> Iterator[WeightMapping]:
        yield WeightMapping("output.weight", tuple(self.tied))

    def blocks(self, model: Any) -> Iterator[tuple[int, str, str]]:
        """The number of each block, and the names of its first and its last layer."""
        size = len(self.block)
        for start in range(0, len(model.stack.layers), size):
            yield start // size, f"stack.layers.{start}", f"stack.layers.{start + size - 1}"


def layer_settings(model: Any) -> list[dict[str, Any]]:
    """The settings of every layer, with those filled in that are derived when it is built."""
    config = model.config
    layers = zip(config.layers(), model.stack.blocks(), strict=True)
    return [settings.plain() | _derived(name, block.layer, config) for (name, settings), block in layers]


def _derived(name: str, layer: Any, config: Any) -> dict[str, Any]:
    if name in ("attention", "two-way-attention"):
        sizes = {"num_heads": layer.heads, "kv_heads": layer.kv_heads, "head_size": layer.head_size}
        if name == "two-way-attention":
            return sizes
        # a table of learned positions limits the context
        context = min(layer.config.context, config.max_positions if config.positions == "learned" else float("inf"))
        return {**sizes, "context": context, "window": layer.config.window if layer.config.window < context else 0}
    if name == "experts":
        return {"inner_size": layer.experts[0].to_output.in_features}
    if name == "mamba":
        return {"step_rank": layer.rank}
    return {"inner_size": layer.to_output.in_features}


FAMILIES: Registry[Family] = Registry("Hugging Face architecture")
