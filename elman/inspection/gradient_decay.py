"""Gradients against distance, before any training: how much of a wish at the end reaches a token long before it.

A layer reads unit-normal noise; what is measured is |d(v·y_T) / dx_t| for a random direction v of length one. No data,
no training: what is seen is the layer and how it starts.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from elman.cells.products import PastProduct
from elman.config import named
from elman.errors import ConfigError
from elman.inspection.precision import dtype_of
from elman.layers import LAYERS, SequenceLayer, two_way
from elman.ops import taps

ROWS = 8  # sequences whose gradients are averaged
LENGTH, WIDTH = 200, 64
DEFAULT_LAYERS = (
    "rnn",
    "rnn:orthogonal=true",
    "rnn:radius=2",
    "gru",
    "lstm:forget_bias=0",
    "lstm:forget_bias=1",
    "lstm:forget_bias=3",
    "mingru",
    "s4d",
    "attention",
)


@dataclass(frozen=True)
class UntrainedLayer:
    """A layer with its settings, and what is done to it before it is measured."""

    layer: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    radius: float | None = None
    """Spectral radius that each square block of the recurrent matrices is brought to."""
    scale: float = 1.0
    """What the inputs are multiplied by."""
    opened: Mapping[str, float] = field(default_factory=dict)
    """Gates with what is added to them before the sigmoid: {"update": 3} is a bias of 3."""
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "Probe":
        """`lstm`, `lstm:forget_bias=3`, `rnn:radius=1.2,scale=0.05`, `gru:open.update=3`."""
        layer, _, rest = text.partition(":")
        own: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        opened: dict[str, float] = {}
        for part in filter(None, rest.split(",")):
            key, equals, value = part.partition("=")
            if not equals:
                raise ConfigError(f"--model {text!r}: settings follow the name as lstm:forget_bias=3,hidden_size=32")
            found = yaml.safe_load(value)
            if key in ("radius", "scale") or key.startswith("open."):
                if not isinstance(found, int | float):
                    raise ConfigError(f"--model {text!r}: {key} is a number, not {value!r}")
                (opened if key.startswith("open.") else own)[key.removeprefix("open.")] = float(found)
            else:
                settings[key] = found
        LAYERS[layer]  # an unknown name is better known now
        return cls(layer, settings, **own, opened=opened, name=text)

    @property
    def call(self) -> str:
        """The Python that makes it."""
        parsed = bool(self.name) and self == UntrainedLayer.parse(self.name)
        return f"{__name__}.Probe.parse({self.name!r})" if parsed else f"{__name__}.{self!r}"

    def build(self, width: int, seed: int, dtype: torch.dtype) -> SequenceLayer:
        settings = dict(self.settings)
        if "hidden_size" in LAYERS[self.layer].Config.model_fields:
            settings.setdefault("hidden_size", width)
        name, config = named(LAYERS, {self.layer: settings})
        kind: Any = LAYERS[name]
        if not kind.causal:
            raise two_way(name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layer = kind(config, width).to(dtype).eval()
        if self.radius is not None:
            bring_to_radius(layer, self.radius)
        return layer

    def opening(self) -> ExitStack:
        """A context in which gates are as wide open as asked."""

        def by(bias: float) -> Callable[[Tensor], Tensor]:
            return lambda gate: torch.sigmoid(torch.logit(gate, 1e-12) + bias)

        stack = ExitStack()
        if self.opened:
            stack.enter_context(taps.edit({f"*gate.{gate}": by(bias) for gate, bias in self.opened.items()}))
        return stack


@torch.no_grad()
def bring_to_radius(layer: nn.Module, radius: float) -> None:
    """Scale each square block of every recurrent matrix so that its largest eigenvalue has this size."""
    products = [part for part in layer.modules() if isinstance(part, PastProduct)]
    if not products:
        raise ConfigError("radius: only recurrent cells have a matrix whose radius could be set")
    for product in products:
        for block in product.weight.split(product.in_features):
            block.mul_(radius / float(torch.linalg.eigvals(block.double()).abs().max()))


@dataclass(frozen=True)
class GradientDecay:
    """Mean norm of the gradient at each distance; zero where the numbers end."""

    name: str
    layer: str
    lags: NDArray[np.int64]
    norms: NDArray[np.float64]
    floor: float
    """Below this, the precision that was used has no normal numbers."""

    def at(self, lag: int) -> float:
        return float(self.norms[np.searchsorted(self.lags, lag)])


def gradient_decay(
    probe: UntrainedLayer, length: int = LENGTH, width: int = WIDTH, seed: int = 0, precision: str = "float32"
) -> GradientDecay:
    """Of an untrained layer, over all distances up to the length."""
    dtype = dtype_of(precision)
    layer = probe.build(width, seed, dtype)
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, length, width, generator=chance, dtype=torch.float64).to(dtype) * probe.scale
    x.requires_grad_()
    with probe.opening():
        last = layer(x)[0][:, -1]
        direction = torch.randn(last.shape, generator=chance, dtype=torch.float64).to(dtype)
        objective = (last * direction / direction.norm(dim=-1, keepdim=True)).sum()
        (gradient,) = torch.autograd.grad(objective, x)
    norms = gradient.double().norm(dim=-1).mean(0).flip(0).numpy()  # squares of small numbers would end too early
    return GradientDecay(probe.name or probe.layer, probe.layer, np.arange(length), norms, torch.finfo(dtype).tiny)
