"""Padding invariance: a text must get the same scores in a batch with longer texts as alone.

Layers get the length of each text. One that ignores it reads padding as tokens, or attends to it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.figures.figure import Figure
from elman.figures.panels import SHARE, Lines, Panel
from elman.figures.provenance import carries_call
from elman.inspection.attention import attention_mass
from elman.inspection.inspected_text import InspectedText
from elman.inspection.trace import weights_of

PADS = (1, 2, 4, 8, 16, 32)
TOLERANCE = 1000  # times the machine epsilon: other shapes sum in another order
LEAK = 0.01  # share of the attention on padding from which a warning is given


class PaddingEffect(NamedTuple):
    pads: int
    change: float  # largest change of a score, relative to the largest score
    mass: dict[str, float]  # attention mass of real tokens on padding, by layer
    seen: bool  # whether the change is more than rounding
    culprit: str  # if so, the first site whose activations changed


def padding(inspected: InspectedText, pads: Sequence[int] = PADS) -> list[PaddingEffect]:
    """Scores come from the forms in use, activations from the reference path, as always."""
    if min(pads, default=0) < 1:
        raise ConfigError(f"pads are one or more numbers from 1 on, not {', '.join(map(str, pads)) or 'none'}")
    alone, activations, found = inspected.scores(), inspected.record("*"), []
    for count in pads:
        scores, padded = inspected.scores(count)[: len(alone)], inspected.record("*", pads=count)
        seen = differ(alone, scores)
        changed = (site for site in activations if not _is_map(site) and differ(activations[site], padded[site]))
        culprit = next(changed, "") if seen else ""
        found.append(PaddingEffect(count, change(alone, scores), masses(inspected, padded), seen, culprit))
    return found


def differ(alone: Tensor, padded: Tensor) -> bool:
    return change(alone, padded) > TOLERANCE * torch.finfo(alone.dtype).eps


def change(alone: Tensor, padded: Tensor) -> float:
    """The largest change at real positions, relative to the largest value."""
    if not alone.numel():
        return 0.0
    real = padded[tuple(slice(size) for size in alone.shape)]
    return float((real - alone).abs().amax() / (alone.abs().amax() or 1))


def masses(inspected: InspectedText, seen: Mapping[str, Tensor]) -> dict[str, float]:
    """Attention mass on padding of each attention layer, averaged over heads and real tokens."""
    found = {}
    for site, weights in seen.items():
        if not _is_map(site) or weights.dim() != 4 or len(weights) != 1:
            continue
        queries = len(inspected.tokens_of(site))
        keys = len(inspected.tokens["encoder"]) if "cross-attention" in site else queries
        square = weights_of(site, weights[0])[:, :queries]
        found[site] = float(attention_mass(square, torch.arange(square.shape[2]) >= keys).mean())
    return found


def _is_map(site: str) -> bool:
    return site.endswith("attention.weights")


@carries_call
def padding_figure(inspected: InspectedText, subtitle: str = "", pads: Sequence[int] = PADS) -> Figure:
    """Change of scores and attention mass on padding, by the number of padding tokens; both should be zero."""
    found = padding(inspected, pads)
    counts = np.array([one.pads for one in found])
    changes, x_label = np.array([one.change for one in found]), "padding tokens beside the text"
    limits = SHARE if changes.max() <= 1 else None
    title = "Largest change of a score"
    panels: list[Panel] = [Lines({"change": (counts, changes)}, x_label, "relative change", limits=limits, title=title)]
    shares = {site: (counts, np.array([one.mass[site] for one in found])) for site in found[0].mass}
    if shares:
        title = "Attention mass of real tokens on padding"
        panels.append(Lines(shares, x_label, "share of attention", limits=SHARE, title=title))
    return Figure("Padding invariance", panels, notes(found), subtitle)


def notes(found: Sequence[PaddingEffect]) -> list[str]:
    """The result in words."""
    worst = max(found, key=lambda one: one.change)
    if worst.seen:
        seen = f"; the first site that changes is {worst.culprit}" if worst.culprit else ""
        sentences = [
            f"WARNING: padding changes scores: by {worst.change:.2g} of the largest, with {worst.pads} pads{seen}. "
            "In a batch this text gets other predictions than alone: a layer ignores `lengths`."
        ]
    else:
        how = f"the largest change is {worst.change:.1g}, which is rounding" if worst.change else "bit for bit"
        sentences = [f"Padding changes no score: {how}."]
    if not found[0].mass:
        return [*sentences, "No layer of this model has attention weights."]
    site, share = max(((site, one.mass[site]) for one in found for site in one.mass), key=lambda pair: pair[1])
    if share > LEAK:
        return [*sentences, f"WARNING: {share:.1%} of the attention of {site} is on padding: its mask is missing."]
    attention = "No attention is on padding." if not share else f"At most {share:.2%} of the attention is on padding."
    return [*sentences, attention]
