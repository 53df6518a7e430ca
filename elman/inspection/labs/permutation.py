"""Lab: does the last output of a layer change when all tokens before it are shuffled? A permutation test.

One attention layer without positions computes a weighted mean, which is invariant to the order of its inputs. Two
layers are not: under the causal mask each output of the first layer depends on how many tokens precede it, so a token
that moves reaches the second layer as another vector. Bidirectional attention has no such mask, and is invariant at any
depth.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.figures.panels import Bars
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.result import Inspection, Numbers
from elman.layers import LAYERS, SequenceLayer

WIDTH, TIME, BATCH = 16, 12, 8
TOLERANCE = 1e-6  # relative; far above the rounding of float64 sums in another order
ATTENTION = [("attention", {"positions": kind}) for kind in ("rotary", "alibi")]
EMBEDDED = [("positions", {"kind": kind}) for kind in ("learned", "sinusoidal")]
SHOWN = ("attention", "two-way-attention", "attention, rotary", "attention, alibi", "gru", "lstm", "s4", "window")
SMALLEST = -17.0

Part = tuple[str, dict[str, Any]]


class OrderSensitivity(NamedTuple):
    """Largest relative change of the last output when the tokens before it are shuffled, and when they are replaced."""

    name: str
    layers: int
    shuffled: float
    replaced: float

    @property
    def changed(self) -> bool:
        return self.shuffled > TOLERANCE

    @property
    def sees(self) -> str:
        if self.changed:
            return "order"
        return "only the last token" if self.replaced <= TOLERANCE else "all, but no order"

    def plain(self) -> dict[str, Any]:
        return {**self._asdict(), "changed": self.changed, "sees": self.sees}


def permutation_table(width: int = WIDTH, time: int = TIME) -> list[OrderSensitivity]:
    """Of one and two of every registered layer, and of attention with every kind of positions."""
    found = []
    variants: list[tuple[list[Part], Part]] = [([], (name, {})) for name in LAYERS]
    variants += [([], part) for part in ATTENTION] + [([positions], ("attention", {})) for positions in EMBEDDED]
    for below, part in variants:
        settings = [*part[1].values(), *(f"{own['kind']} positions" for _, own in below)]
        name = ", ".join([part[0], *settings])
        found += [order_sensitivity(name, below, [part] * count, width, time) for count in (1, 2)]
    return found


def order_sensitivity(
    name: str, below: list[Part], layers: list[Part], width: int = WIDTH, time: int = TIME, seed: int = 0
) -> OrderSensitivity:
    """Of a stack of layers with random weights, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x, others = torch.randn(2, BATCH, time, width, dtype=torch.float64, generator=generator)
    last = x[:, -1:]
    order = torch.randperm(time - 1, generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        stack = build([*below, *layers], width)
    own = last_output(stack, x)
    shuffled, replaced = (
        float((last_output(stack, torch.cat([before, last], 1)) - own).abs().max() / own.abs().max())
        for before in (x[:, order], others[:, :-1])
    )
    return OrderSensitivity(name, len(layers), shuffled, replaced)


def build(parts: list[Part], width: int) -> list[SequenceLayer]:
    stack: list[SequenceLayer] = []
    for name, settings in parts:
        layer: Any = LAYERS[name]
        stack.append(layer(layer.Config.make(settings), stack[-1].output_size if stack else width).double().eval())
    return stack


@torch.no_grad()
def last_output(stack: list[SequenceLayer], x: Tensor) -> Tensor:
    for layer in stack:
        x, _ = layer(x)
    return x[:, -1]


def permutation_figure(table: Sequence[OrderSensitivity]) -> Inspection:
    """Bars of a selection; numbers of all."""
    found = {(one.name, one.layers): one for one in table}
    names = [name for name in SHOWN if (name, 1) in found]
    depths = {"1 layer": 1, "2 layers": 2}
    powers = {
        depth: [math.log10(max(10**SMALLEST, found[name, count].shuffled)) for name in names]
        for depth, count in depths.items()
    }
    title = "Relative change of the last output when all tokens before it are shuffled"
    panel = Bars(names, powers, "log10 of the change", (SMALLEST, 1), title=title)
    axes = {"layer": [one.name for one in table]}
    numbers = {
        "layers": Numbers.of([one.layers for one in table], **axes),
        "change": Numbers.of([one.shuffled for one in table], **axes),
        "sees": Numbers([one.sees for one in table], axes),
    }
    return Inspection("Sensitivity to order", [panel], numbers=numbers)


def experiment(seed: int, progress: Progress, *, width: int = WIDTH, time: int = TIME) -> Result:
    figure = permutation_figure(permutation_table(width, time))
    (panel,) = figure.panels
    assert isinstance(panel, Bars)
    bars = {depth: zip(panel.names, values, strict=True) for depth, values in panel.bars.items()}
    measured = {f"{name}, {depth}": float(power) for depth, pairs in bars.items() for name, power in pairs}
    return Result([figure], measured)


LAB = Lab(
    "permutation",
    "Positions",
    "Without positional encodings, does attention depend on the order of its inputs?",
    "One causal layer does not: shuffling all tokens but the last changes its last output by rounding only. Two "
    "causal layers do: under the mask, each output of the first depends on how many tokens precede it. "
    "Bidirectional attention has no mask and is permutation invariant at any depth. Recurrent layers always depend "
    "on order.",
    {
        "attention, 1 layer": (-17, -14),
        "attention, 2 layers": (-3, 0.5),
        "two-way-attention, 2 layers": (-17, -14),
        "gru, 1 layer": (-2, 0.5),
    },
    experiment,
    try_next={
        "time=100": "Is one causal layer still invariant to the order of a hundred tokens?",
        "width=64": "Does the width change what is seen?",
    },
)
