"""Who sees order? Shuffle all tokens but the last, and look whether the last output changes.

One attention layer without positions reads a weighted mean, and a mean does not know the order of what it was taken
over. Two of them see order all the same: by the causal mask each output of the first layer depends on how many tokens
came before it, so a token that moves is read as something else by the second. Attention to both sides has no such mask,
and sees no order however deep.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.layers import LAYERS, SequenceLayer

WIDTH, TIME, BATCH = 16, 12, 8
SAME = 1e-6  # relative; what sums in another order differ by in float64 is far below
ATTENTION = [("attention", {"positions": kind}) for kind in ("rotary", "alibi")]
PLACES = [("positions", {"kind": kind}) for kind in ("learned", "sinusoidal")]

Part = tuple[str, dict[str, Any]]


class OrderSensitivity(NamedTuple):
    """The largest change of the last output, relative to its own size, when the tokens before it are shuffled, and
    when they are replaced by others."""

    name: str
    layers: int
    shuffled: float
    replaced: float

    @property
    def changed(self) -> bool:
        return self.shuffled > SAME

    @property
    def sees(self) -> str:
        if self.changed:
            return "order"
        return "only the last token" if self.replaced <= SAME else "all, but no order"

    def plain(self) -> dict[str, Any]:
        return {**self._asdict(), "changed": self.changed, "sees": self.sees}


def permutation_table() -> list[OrderSensitivity]:
    """Every registered layer, one and two of it, and attention with every way to tell it positions."""
    found = []
    variants: list[tuple[list[Part], Part]] = [([], (name, {})) for name in LAYERS]
    variants += [([], part) for part in ATTENTION] + [([places], ("attention", {})) for places in PLACES]
    for beneath, part in variants:
        told = [*part[1].values(), *(f"{own['kind']} positions" for _, own in beneath)]
        name = ", ".join([part[0], *told])
        found += [order_sensitivity(name, beneath, [part] * count) for count in (1, 2)]
    return found


def order_sensitivity(name: str, beneath: list[Part], layers: list[Part], seed: int = 0) -> OrderSensitivity:
    """Of layers with their settings on each other, at random weights, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x, others = torch.randn(2, BATCH, TIME, WIDTH, dtype=torch.float64, generator=generator)
    last = x[:, -1:]
    order = torch.randperm(TIME - 1, generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        stack = build([*beneath, *layers])
    own = last_output(stack, x)
    shuffled, replaced = (
        float((last_output(stack, torch.cat([before, last], 1)) - own).abs().max() / own.abs().max())
        for before in (x[:, order], others[:, :-1])
    )
    return OrderSensitivity(name, len(layers), shuffled, replaced)


def build(parts: list[Part]) -> list[SequenceLayer]:
    stack: list[SequenceLayer] = []
    for name, settings in parts:
        kind: Any = LAYERS[name]
        stack.append(kind(kind.Config.make(settings), stack[-1].output_size if stack else WIDTH).double().eval())
    return stack


@torch.no_grad()
def last_output(stack: list[SequenceLayer], x: Tensor) -> Tensor:
    for layer in stack:
        x, _ = layer(x)
    return x[:, -1]
