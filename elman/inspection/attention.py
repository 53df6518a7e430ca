"""Where attention lies while a text is read: maps, how spread they are, how far they reach, what they spend on what.

Weights come from the reference path, which every form of attention must equal: so they can be had where a fused kernel
is used, too.
"""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.errors import ConfigError
from elman.figures.figure import Figure
from elman.figures.panels import Bars, ColouredText, HeatMap, Lines, Panel, as_array
from elman.figures.provenance import carries_call
from elman.inspection import downsampling
from elman.inspection.inspected_text import InspectedText
from elman.inspection.trace import trace, weights_of

HEADS = 8  # of a layer that are drawn where nobody chose
LAYERS_SHOWN = 4
CURVES = 12
ALIGNED = "decoder.alignment"


class AttentionMaps(NamedTuple):
    """The weights (heads, rows, columns) of one layer: who looks (rows) at whom (columns)."""

    site: str
    weights: Tensor
    rows: list[str]
    columns: list[str]

    @property
    def across(self) -> bool:
        """From one text to another."""
        return "cross-attention" in self.site or self.site.endswith(ALIGNED)


def attention_maps(inspected: InspectedText) -> list[AttentionMaps]:
    """Every layer that has weights, from bottom to top. Rows of what is written are named by what is being written."""
    found = trace(inspected, ("*",))
    written = [inspected.outcome(number) for number in inspected.truth]
    layers = []
    for site, weights in found.data.items():
        rows = found.tokens_of(site)
        if site.endswith(ALIGNED):  # of a transducer: where each word is written, between a start and an end
            places = ["<start>", *found.sides["encoder"], "<end>"]
            layers.append(AttentionMaps(site, weights.exp().unsqueeze(0), written, places))
        if not site.endswith("weights") or weights.dim() != 3:
            continue
        across = "cross-attention" in site
        columns = found.sides.get("encoder", rows) if across else rows
        square = weights_of(site, weights)[:, : len(rows), : len(columns)]
        layers.append(AttentionMaps(site, square, written if across and len(written) == len(rows) else rows, columns))
    return layers


def entropy(weights: Tensor) -> Tensor:
    """Bits (heads, rows): 0 looks at one place, log2(n) at n places alike."""
    return -torch.xlogy(weights, weights).sum(-1) / math.log(2)


def by_distance(weights: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Mean weight (heads, distances) of what stands so many positions before (or, below zero, after) who looks."""
    _, rows, columns = weights.shape
    distance = torch.arange(rows)[:, None] - torch.arange(columns)[None]
    lags = torch.arange(int(distance.min()), int(distance.max()) + 1)
    if not weights[:, distance < 0].any():  # nothing ever looks ahead
        lags = lags[lags >= 0]
    means = torch.stack([weights[:, distance == lag].double().mean(1) for lag in lags.tolist()], 1)
    return lags.numpy(), means.numpy()


def attention_mass(weights: Tensor, wanted: Tensor) -> Tensor:
    """Mean share (heads,) that falls on some columns: on padding, on noise, on a word."""
    return weights[:, :, wanted].sum(-1).mean(-1)


@carries_call
def attention_figure(
    inspected: InspectedText,
    of: str = "",
    layer: int | None = None,
    heads: Sequence[int] = (),
    marked: Collection[str] = (),
) -> Figure:
    """Maps of layers and heads (counted from 1), and what they amount to; `marked` are tokens whose share is told."""
    found = attention_maps(inspected)
    pooled = pooling_panel(inspected)
    if not found:
        if pooled:
            return Figure("Where attention lies", [pooled], (), of)
        raise ConfigError("no layer of this model has attention weights; elman inspect trace shows what it has")
    if layer is not None and not 1 <= layer <= len(found):
        raise ConfigError(f"layer {layer}: {len(found)} layers have attention, counted from 1")
    chosen = found[:LAYERS_SHOWN] if layer is None else [found[layer - 1]]
    panels: list[Panel] = []
    notes = []
    for look in chosen:
        count = len(look.weights)
        wrong = [head for head in heads if not 1 <= head <= count]
        if wrong:
            raise ConfigError(f"head {wrong[0]}: {look.site} has {count} heads, counted from 1")
        shown = [head - 1 for head in heads] or list(range(min(count, HEADS)))
        maps = {
            f"head {head + 1}" if count > 1 else "": downsampling.shares(as_array(look.weights[head])) for head in shown
        }
        rows, columns = downsampling.names(look.rows), downsampling.names(look.columns)
        panels.append(HeatMap(maps, rows, columns, time="rows", title=look.site, quantity="attention"))
        notes.append(summary(look, shown, marked))
        if len(shown) < count and not heads:
            notes.append(f"{len(shown)} of {count} heads are shown.")
    notes += downsampling.note(max(max(look.weights.shape[1:]) for look in chosen))
    if len(found) > len(chosen) and layer is None:
        notes.append(f"{len(chosen)} of {len(found)} layers are shown; choose with --layer.")
    panels += [entropy_panel(chosen)] if sum(len(look.weights) for look in chosen) > 1 else []
    inward = [look for look in chosen if not look.across]
    panels += [attention_distance_panel(inward)] if inward else []
    return Figure("Where attention lies", [*panels, *([pooled] if pooled else [])], notes, of)


def summary(look: AttentionMaps, heads: Sequence[int], marked: Collection[str]) -> str:
    """What a layer's weights amount to, in words."""
    weights = look.weights[list(heads)]
    bits = entropy(weights).mean(-1)
    sharp = int(bits.argmin())
    most = math.log2(max(2, len(look.columns)))
    words = f"{look.site}: {float(bits.mean()):.2f} bits of {most:.2f} possible"
    if len(heads) > 1:
        words += f"; head {heads[sharp] + 1} is the sharpest, with {float(bits[sharp]):.2f}"
    if marked:
        wanted = torch.tensor([token in marked for token in look.columns])
        words += f"; {float(mass(weights, wanted).mean()):.1%} lies on {', '.join(map(repr, marked))}"
        words += f", {float(wanted.double().mean()):.1%} of all places"
    return f"{words}."


def entropy_panel(found: Sequence[AttentionMaps]) -> Bars:
    names = [name for look in found for name in _names(look, found)]
    bits = np.concatenate([entropy(look.weights).mean(-1).double().numpy() for look in found])
    return Bars(names, {"entropy": bits}, "bits", title="How spread each head looks: mean entropy")


def attention_distance_panel(found: Sequence[AttentionMaps]) -> Lines:
    lines: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    for look in found:
        lags, means = by_distance(look.weights)
        for name, line in zip(_names(look, found), means, strict=True):
            if len(lines) < CURVES:
                lines[name] = (lags, line)
    title = "How far each head looks: mean weight by distance back (0: its own place)"
    return Lines(lines, "places back", "mean weight", limits=(0, 1), title=title)


def pooling_panel(inspected: InspectedText) -> ColouredText | None:
    """Of a classifier whose verdict is a weighted mean: the weight of each word."""
    pooling = getattr(inspected.model, "pooling", None)
    if pooling is None or getattr(pooling, "kind", "") != "attention":
        return None
    from elman.evaluation.inference_mode import inference_mode
    from elman.ops import taps

    with inference_mode(inspected.model), taps.record("embedding", "*pooling*") as seen:
        features = inspected.run(1)
        assert len(features) == 1
    if "pooling.weights" not in list(seen):  # while verdicts are running, no weight is final
        return None
    return ColouredText(
        inspected.main,
        as_array(seen["pooling.weights"][0]),
        title="Weight of each word in the verdict",
        quantity="attention",
    )


def _names(look: AttentionMaps, found: Sequence[AttentionMaps]) -> list[str]:
    count = len(look.weights)
    layer = f"layer {found.index(look) + 1}" if len(found) > 1 else ""
    heads = [f"head {head + 1}" if count > 1 else "" for head in range(count)]
    return [" ".join(filter(None, [layer, head])) or "attention" for head in heads]
