"""Whether padding is seen: a text must get the same scores in a batch with longer ones as it gets alone.

Layers are told where each text ends. One that does not heed it reads on, or lets real words look at padding.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Lines, Panel
from elman.figures.provenance import carries_call
from elman.inspection.attention import attention_mass
from elman.inspection.inspected_text import InspectedText
from elman.inspection.trace import weights_of
from elman.ops import taps

PADS = (1, 2, 4, 8, 16, 32)
ROUNDING = 1000  # times the precision: sums of other shapes are taken in another order
MUCH = 0.01  # of the attention
LIMITS = (-0.03, 1.03)

Recorded = Mapping[str, Tensor]


class PaddingEffect(NamedTuple):
    """What so much padding did to a text."""

    pads: int
    change: float  # the largest of any score, as a share of the largest score
    attention_mass: dict[str, float]  # share of the attention of real words that lies on padding, by layer
    seen: bool  # whether that is more than rounding
    culprit: str  # then, the first site that changed


def padding(inspected: InspectedText, pads: Sequence[int] = PADS) -> list[PaddingEffect]:
    """Scores by the forms that are in use; what passes inside by the reference path, as ever."""
    if min(pads, default=0) < 1:
        raise ConfigError(f"pads are one or more numbers from 1 on, not {', '.join(map(str, pads)) or 'none'}")
    with inference_mode(inspected.model):
        alone = inspected.run(1)
    inside, found = recorded(inspected), []
    for count in pads:
        with inference_mode(inspected.model):
            scores = inspected.run(1, count)[:, : alone.shape[1]]
        beside, seen = recorded(inspected, count), differ(alone, scores)
        changed = (site for site in inside if not _is_map(site) and differ(inside[site], beside[site]))
        culprit = next(changed, "") if seen else ""
        found.append(PaddingEffect(count, change(alone, scores), masses(inspected, beside), seen, culprit))
    return found


def differ(alone: Tensor, beside: Tensor) -> bool:
    return change(alone, beside) > ROUNDING * torch.finfo(alone.dtype).eps


def recorded(inspected: InspectedText, pads: int = 0) -> Recorded:
    with inference_mode(inspected.model), taps.record("*") as seen:
        inspected.run(1, pads)
    return {site: seen[site] for site in seen}


def change(alone: Tensor, beside: Tensor) -> float:
    """The largest, as a share of the largest number; positions of padding come after the real ones."""
    if not alone.numel():
        return 0.0
    real = beside[tuple(slice(size) for size in alone.shape)]
    return float((real - alone).abs().amax() / (alone.abs().amax() or 1))


def masses(inspected: InspectedText, seen: Recorded) -> dict[str, float]:
    """Of each layer with attention, over all heads and real words."""
    found = {}
    for site, weights in seen.items():
        if not _is_map(site) or weights.dim() != 4 or len(weights) != 1:
            continue
        words = len(inspected.tokens_of(site))
        places = len(inspected.tokens["encoder"]) if "cross-attention" in site else words
        square = weights_of(site, weights[0])[:, :words]
        found[site] = float(attention_mass(square, torch.arange(square.shape[2]) >= places).mean())
    return found


def _is_map(site: str) -> bool:
    return site.endswith("attention.weights")


@carries_call
def padding_figure(inspected: InspectedText, of: str = "", pads: Sequence[int] = PADS) -> Figure:
    """How scores change with padding, and what attention spends on it: neither should be."""
    found = padding(inspected, pads)
    counts = np.array([one.pads for one in found])
    changes, heads = np.array([one.change for one in found]), ("pads beside the text", "share of the largest score")
    limits = LIMITS if changes.max() <= 1 else None
    panels: list[Panel] = [
        Lines({"change": (counts, changes)}, *heads, limits=limits, title="Change of scores, at most")
    ]
    shares = {site: (counts, np.array([one.mass[site] for one in found])) for site in found[0].mass}
    if shares:
        title = "Attention of real words on padding"
        panels.append(Lines(shares, heads[0], "share of attention", limits=LIMITS, title=title))
    return Figure("What padding does", panels, notes(found), of)


def notes(found: Sequence[PaddingEffect]) -> list[str]:
    """The verdict in words."""
    worst = max(found, key=lambda one: one.change)
    if worst.seen:
        seen = f"; the first to change is {worst.culprit}" if worst.culprit else ""
        told = [
            f"WARNING: padding changes scores: by {worst.change:.2g} of the largest, with {worst.pads} pads{seen}. "
            "In a batch this text gets other answers than alone: a layer must heed `lengths`."
        ]
    else:
        how = f"the largest change of any is {worst.change:.1g}, which is rounding" if worst.change else "not by a bit"
        told = [f"Padding changes no score: {how}."]
    if not found[0].mass:
        return [*told, "No layer of this model has attention weights that could lie on padding."]
    site, share = max(((site, one.mass[site]) for one in found for site in one.mass), key=lambda pair: pair[1])
    if share > MUCH:
        return [*told, f"WARNING: {share:.1%} of the attention of {site} lies on padding: its mask is missing."]
    return [
        *told,
        "No attention lies on padding." if not share else f"At most {share:.2%} of attention lies on padding.",
    ]
