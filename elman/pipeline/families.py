"""Families of models: the customary form of each."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from elman.errors import UnknownName
from elman.models.stack import Stack, StackConfig, count_parameters, on_meta
from elman.pipeline.sizes import closest_width
from elman.pipeline.tasks.settings import TRANSFORMER

STEP = 8  # widths are tried in steps of this: four heads of an even number of units each
MAX_WIDTH = 1024
CONTEXT = 512  # covers the longest row of every synthetic task; more only makes the state larger


def _modern(*layers: Any, repeat: int = 2) -> dict[str, Any]:
    return {"pattern": [*layers] * repeat, "residual": True, "norm": "pre"}


def _attention(positions: str) -> dict[str, Any]:
    return _modern({"attention": {"num_heads": 4, "positions": positions, "context": CONTEXT}}, "feedforward")


# For synthetic tasks, which need long contexts
FAMILIES: dict[str, dict[str, Any]] = {
    "rnn": {"pattern": ["rnn"]},
    "gru": {"pattern": ["gru"]},
    "lstm": {"pattern": ["lstm"]},
    "mingru": _modern("mingru", "feedforward"),
    "minlstm": _modern("minlstm", "feedforward"),
    # two of each dilation, as in Bai et al. (2018); a receptive field of 4 · (1 + 2 + … + 32) + 1 = 253 steps
    "convolution": {"pattern": [{"convolution": {"dilation": 2 ** (i // 2)}} for i in range(12)], "residual": True},
    "attention": _attention("rotary"),
    "attention-alibi": _attention("alibi"),
    "attention-none": _attention("none"),
    "linear-attention": _modern("linear-attention", "feedforward"),
    "s4d": _modern("s4d"),
    "mamba": _modern("mamba"),
}
# A receptive field of 31 steps, in half as many layers as in Bai et al. (2018): a race on two cores has to end.
DILATED = [{"convolution": {"kernel_size": 3, "dilation": dilation, "gated": True}} for dilation in (1, 2, 4, 8)]
# For races of models that are one stack of layers
STACKS: dict[str, dict[str, Any]] = {
    **FAMILIES,
    "window": {"pattern": [{"window": {"context": 5}}]},
    "convolution": {"pattern": DILATED, "residual": True, "norm": "pre"},
    TRANSFORMER: FAMILIES["attention"],
}


def in_order(families: Iterable[str]) -> list[str]:
    """Each once, in the order above; those of another version last."""
    known = list(FAMILIES)
    return sorted(set(families), key=lambda name: (known.index(name) if name in known else len(known), name))


@cache
def fitted(family: str, parameters: int) -> StackConfig:
    """The family's stack with the width that comes closest to a number of parameters."""
    if family not in FAMILIES:
        raise UnknownName("family", family, FAMILIES)
    config = StackConfig.make(FAMILIES[family], where=f"family.{family}")

    def of_width(width: int) -> StackConfig:
        return config.model_copy(update={"hidden_size": width})

    def size(width: int) -> int:
        return on_meta(lambda: count_parameters(Stack(of_width(width), width)))

    return of_width(closest_width(size, parameters, range(STEP, MAX_WIDTH + 1, STEP)))
