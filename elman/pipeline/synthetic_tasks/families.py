"""Families of models, each in its customary form, made equally large."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from elman.errors import UnknownName
from elman.models.stack import Stack, StackConfig, count_parameters, on_meta

STEP = 8  # widths are tried in steps of this: four heads of an even number of units each
WIDEST = 1024
CONTEXT = 512  # covers the longest row of every task; more only makes the state larger


def _modern(*layers: Any, repeat: int = 2) -> dict[str, Any]:
    return {"pattern": [*layers] * repeat, "residual": True, "norm": "pre"}


def _attention(positions: str) -> dict[str, Any]:
    return _modern({"attention": {"num_heads": 4, "positions": positions, "context": CONTEXT}}, "feedforward")


FAMILIES: dict[str, dict[str, Any]] = {
    "rnn": {"pattern": ["rnn"]},
    "gru": {"pattern": ["gru"]},
    "lstm": {"pattern": ["lstm"]},
    "mingru": _modern("mingru", "feedforward"),
    "minlstm": _modern("minlstm", "feedforward"),
    # two of each dilation, as Bai et al. (2018) have it; sees 4 · (1 + 2 + … + 32) + 1 = 253 steps
    "convolution": {"pattern": [{"convolution": {"dilation": 2 ** (i // 2)}} for i in range(12)], "residual": True},
    "attention": _attention("rotary"),
    "attention-alibi": _attention("alibi"),
    "attention-none": _attention("none"),
    "linear-attention": _modern("linear-attention", "feedforward"),
    "s4d": _modern("s4d"),
    "mamba": _modern("mamba"),
}


def in_order(families: Iterable[str]) -> list[str]:
    """Each once, as they stand above; those of another version last."""
    known = list(FAMILIES)
    return sorted(set(families), key=lambda name: (known.index(name) if name in known else len(known), name))


@cache
def fitted(family: str, parameters: int) -> StackConfig:
    """The family's stack, as wide as comes closest to a number of parameters."""
    if family not in FAMILIES:
        raise UnknownName("family", family, FAMILIES)
    config = StackConfig.make(FAMILIES[family], where=f"family.{family}")
    sizes: dict[int, int] = {}
    for width in range(STEP, WIDEST + 1, STEP):
        sizes[width] = _count(config, width)
        if sizes[width] >= parameters:
            break
    best = min(sizes, key=lambda width: abs(sizes[width] - parameters))
    return config.model_copy(update={"hidden_size": best})


def _count(config: StackConfig, width: int) -> int:
    config = config.model_copy(update={"hidden_size": width})
    return on_meta(lambda: count_parameters(Stack(config, width)))
