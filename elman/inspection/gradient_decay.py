"""Gradient norm against distance for untrained layers: vanishing and exploding gradients at initialisation.

The layer reads unit-normal noise x. Measured is |d(v·y_T) / dx_t| for a random unit vector v, by distance T - t. There
is no data and no training: the result shows the layer and its initialisation. The diagnosis says whether a gradient
vanishes, is preserved or explodes, at which rate per step, and names usual remedies.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elman.cells import PastProduct
from elman.config import name_and_settings, named
from elman.errors import ConfigError
from elman.inspection.inspected_text import dtype_of
from elman.layers import LAYERS, SequenceLayer, two_way
from elman.ops import taps
from elman.plain_yaml import parse_yaml

ROWS = 8  # sequences whose gradient norms are averaged
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

LOST = 1e-7  # relative to the start: below the resolution of float32 sums
PRESERVED, EXPLODED, OVER = 1e-2, 1e2, 200  # factors over 200 steps: between these two the gradient is preserved
REMEDIES = {
    "rnn": "use a gated cell (gru, lstm), or an orthogonal initialisation, {rnn: {orthogonal: true}}, and small inputs",
    "lstm": "open the forget gates at the start: {lstm: {forget_bias: 3}}",
    "gru": "open the update gates (--model gru:open.update=3 shows the effect), or use {lstm: {forget_bias: 3}}",
}
APPLIED = ("orthogonal=true", "forget_bias=3", "open.update=")  # remedies that the settings contain already
LSTM_LIKE = ("peephole", "layernorm-lstm", "coupled", "minlstm")
SKIP = "add a path around the cell: residual: true, or an attention or state space layer in the pattern"
CLIP = (
    "clip it (training.clip_grad_norm: 1), use a smaller or orthogonal initialisation ({orthogonal: true}) or a gated "
    "cell, or put a norm before each layer (model.norm: pre)"
)


@dataclass(frozen=True)
class UntrainedLayer:
    """A layer with its settings, and changes to its initialisation and input."""

    layer: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    radius: float | None = None  # spectral radius that each square block of the recurrent matrices is rescaled to
    scale: float = 1.0  # factor of the inputs
    opened: Mapping[str, float] = field(default_factory=dict)  # bias added to gates before the sigmoid: {"update": 3}
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "UntrainedLayer":
        """`lstm`, `lstm:forget_bias=3`, `rnn:radius=1.2,scale=0.05`, `gru:open.update=3`."""
        layer, given = name_and_settings(text)
        own: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        opened: dict[str, float] = {}
        for key, value in given.items():
            found = parse_yaml(value)
            if key in ("radius", "scale") or key.startswith("open."):
                if not isinstance(found, int | float):
                    raise ConfigError(f"--model {text!r}: {key} is a number, not {value!r}")
                (opened if key.startswith("open.") else own)[key.removeprefix("open.")] = float(found)
            else:
                settings[key] = found
        LAYERS[layer]  # raises here for an unknown name
        return cls(layer, settings, **own, opened=opened, name=text)

    @property
    def call(self) -> str:
        """The Python expression that makes it."""
        parsed = bool(self.name) and self == UntrainedLayer.parse(self.name)
        return f"{__name__}.UntrainedLayer.parse({self.name!r})" if parsed else f"{__name__}.{self!r}"

    def build(self, width: int, seed: int, dtype: torch.dtype) -> SequenceLayer:
        settings = dict(self.settings)
        if "hidden_size" in LAYERS[self.layer].Config.model_fields:
            settings.setdefault("hidden_size", width)
        name, config = named(LAYERS, {self.layer: settings})
        factory: Any = LAYERS[name]
        if not factory.causal:
            raise two_way(name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layer = factory(config, width).to(dtype).eval()
        if self.radius is not None:
            set_spectral_radius(layer, self.radius)
        return layer

    def with_open_gates(self) -> AbstractContextManager[None]:
        """A context in which the biases of `opened` are added to the gates."""

        def add(bias: float) -> Callable[[Tensor], Tensor]:
            return lambda gate: torch.sigmoid(torch.logit(gate, 1e-12) + bias)

        edits: dict[str, taps.Edit] = {f"*gate.{gate}": add(bias) for gate, bias in self.opened.items()}
        return taps.edit(edits) if edits else nullcontext()  # with an edit, the reference implementation runs


@torch.no_grad()
def set_spectral_radius(layer: nn.Module, radius: float) -> None:
    """Rescales each square block of every recurrent matrix so that its largest eigenvalue has this modulus."""
    products = [part for part in layer.modules() if isinstance(part, PastProduct)]
    if not products:
        raise ConfigError("radius: only recurrent cells have a recurrent matrix")
    for product in products:
        for block in product.weight.split(product.in_features):
            block.mul_(radius / float(torch.linalg.eigvals(block.double()).abs().max()))


class GradientDecay(NamedTuple):
    """Mean gradient norm at each distance; zero where it underflows."""

    name: str
    layer: str
    lags: NDArray[np.int64]
    norms: NDArray[np.float64]
    floor: float  # the smallest normal number of the dtype

    def at(self, lag: int) -> float:
        return float(self.norms[np.searchsorted(self.lags, lag)])


def gradient_decay(
    untrained: UntrainedLayer, length: int = LENGTH, width: int = WIDTH, seed: int = 0, precision: str = "float32"
) -> GradientDecay:
    """At all distances up to `length`."""
    dtype = dtype_of(precision)
    layer = untrained.build(width, seed, dtype)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, length, width, generator=generator, dtype=torch.float64).to(dtype) * untrained.scale
    x.requires_grad_()
    with untrained.with_open_gates():
        last = layer(x)[0][:, -1]
        direction = torch.randn(last.shape, generator=generator, dtype=torch.float64).to(dtype)
        objective = (last * direction / direction.norm(dim=-1, keepdim=True)).sum()
        (gradient,) = torch.autograd.grad(objective, x)
    norms = gradient.double().norm(dim=-1).mean(0).flip(0).numpy()  # in float32, squares would underflow too early
    name = untrained.name or untrained.layer
    return GradientDecay(name, untrained.layer, np.arange(length), norms, torch.finfo(dtype).tiny)


class Diagnosis(NamedTuple):
    verdict: str  # vanishes, passes, explodes, or ends where the receptive field does
    rate: float  # factor per step, over the distances with a measurable gradient
    reach: int | None  # steps after which less than 1e-7 of the gradient is left; None where that never happens
    words: str


def diagnose(found: GradientDecay) -> Diagnosis:
    normal = found.norms > found.floor
    end = int(np.argmin(normal)) if not normal.all() else len(normal)  # measured up to the first underflow
    if end < 2:
        return Diagnosis("ends", 0.0, 1, f"{found.name}: ends; it depends on no other token than its own.")
    start, last = found.norms[1], found.norms[end - 1]
    rate = float((last / start) ** (1 / (end - 2)) if end > 2 else last / found.norms[0])
    lost = np.flatnonzero(found.norms < LOST * start)
    reach = int(found.lags[lost[0]]) if len(lost) else None
    underflows = end < len(normal)
    left, factor = (0.0, 0.0) if underflows else (float(last / start), rate**OVER)
    longest = int(found.lags[-1])
    if factor > EXPLODED:
        verdict = "explodes"
        words = f"it grows by {rate:.3g} per step, to {left:.0e} times its start over {longest} steps. Remedy: {CLIP}"
    elif factor >= PRESERVED:
        verdict, words = "passes", f"over {longest} steps {left:.2g} of it is left"
    elif underflows and last > PRESERVED * start:
        verdict, words = "ends", f"it is zero beyond {end - 1} steps, the receptive field of the layer"
    else:
        half = np.log(0.5) / np.log(rate)
        decay = f"below 1e-7 after {reach}" if reach else f"{left:.2g} is left over {longest}"
        applied = any(setting in found.name for setting in APPLIED)
        remedy = SKIP if applied else REMEDIES.get("lstm" if found.layer in LSTM_LIKE else found.layer, SKIP)
        verdict, words = "vanishes", f"its half-life is {half:.2g} steps, {decay}. Remedy: {remedy}"
    return Diagnosis(verdict, rate, reach, f"{found.name}: {verdict}; {words}.")
