"""Attention maps: weights of every layer and head, their entropy, distance and share on chosen tokens; alignments.

Weights are those of the reference path, which every fused kernel must equal. The alignment of an encoder-decoder is its
cross-attention under teacher forcing.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.batches import Ragged
from elman.errors import ConfigError
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Bars, ColouredText, Curve, HeatMap, Lines, Panel, as_array
from elman.figures.provenance import carries_call
from elman.inspection import downsampling
from elman.inspection.inspected_text import InspectedText
from elman.inspection.result import Inspection, Numbers
from elman.inspection.trace import AttentionMaps, choose_layers, head_names, trace
from elman.ops import taps

HEADS = 8  # of a layer, shown by default
CURVES = 12  # heads in the chart of attention distance
ALIGNMENT = "decoder.alignment"


def attention_maps(inspected: InspectedText) -> list[AttentionMaps]:
    """Of every attention layer, from bottom to top. Queries of a decoder are named by the token that they predict."""
    found = trace(inspected, ("*",))
    predicted = [inspected.outcome(number) for number in inspected.truth]
    layers = []
    for site, weights in found.data.items():
        if site.endswith(ALIGNMENT):  # of a transducer: emission positions, between a start and an end
            keys = ["<start>", *found.sides["encoder"], "<end>"]
            layers.append(AttentionMaps(site, weights.exp().unsqueeze(0), predicted, keys))
        elif site.endswith("weights") and weights.dim() == 3:
            maps = found.attention(site)
            renamed = is_cross(maps) and len(predicted) == len(maps.queries)
            layers.append(maps._replace(queries=predicted) if renamed else maps)
    return layers


def is_cross(maps: AttentionMaps) -> bool:
    """Whether queries and keys are of different texts."""
    return "cross-attention" in maps.site or maps.site.endswith(ALIGNMENT)


def entropy(weights: Tensor) -> Tensor:
    """Attention entropy (heads, queries) in bits: 0 for one key, log2(n) for n keys of equal weight."""
    return -torch.xlogy(weights, weights).sum(-1) / math.log(2)


def by_distance(weights: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Distances (query minus key; negative ones look ahead) and the mean weight (heads, distances) at each."""
    _, queries, keys = weights.shape
    distance = torch.arange(queries)[:, None] - torch.arange(keys)[None]
    lags = torch.arange(int(distance.min()), int(distance.max()) + 1)
    if not weights[:, distance < 0].any():  # causal
        lags = lags[lags >= 0]
    means = torch.stack([weights[:, distance == lag].double().mean(1) for lag in lags.tolist()], 1)
    return lags.numpy(), means.numpy()


def attention_mass(weights: Tensor, wanted: Tensor) -> Tensor:
    """Mean share (heads,) of the weights on some keys: on padding, on noise, on a word."""
    return weights[:, :, wanted].sum(-1).mean(-1)


@carries_call
def attention_figure(
    inspected: InspectedText,
    subtitle: str = "",
    layer: int | None = None,
    heads: Sequence[int] = (),
    marked: Collection[str] = (),
) -> Inspection:
    """Maps of layers and heads (counted from 1); the attention mass on `marked` tokens is reported."""
    found = attention_maps(inspected)
    pooled = pooling_panel(inspected)
    if not found and pooled:
        return Inspection("Attention", [pooled], (), subtitle, numbers=pooling_numbers(pooled))
    if not found:
        raise ConfigError("no layer of this model has attention weights; elman inspect trace shows what it has")
    chosen, left_out = choose_layers(found, layer, "have attention")
    panels: list[Panel] = []
    notes = []
    for maps in chosen:
        count = len(maps.weights)
        wrong = [head for head in heads if not 1 <= head <= count]
        if wrong:
            raise ConfigError(f"head {wrong[0]}: {maps.site} has {count} heads, counted from 1")
        shown = [head - 1 for head in heads] or list(range(min(count, HEADS)))
        panels.append(maps.heat_map(shown))
        notes.append(summary(maps, shown, marked))
        if len(shown) < count and not heads:
            notes.append(f"{len(shown)} of {count} heads are shown.")
    notes += downsampling.note(max(max(maps.weights.shape[1:]) for maps in chosen))
    notes += left_out
    panels += [entropy_panel(chosen)] if sum(len(maps.weights) for maps in chosen) > 1 else []
    within = [maps for maps in chosen if not is_cross(maps)]
    panels += [attention_distance_panel(within)] if within else []
    numbers = {maps.site: maps.numbers() for maps in (found if layer is None else chosen)} | pooling_numbers(pooled)
    return Inspection("Attention", [*panels, *([pooled] if pooled else [])], notes, subtitle, numbers=numbers)


def summary(maps: AttentionMaps, heads: Sequence[int], marked: Collection[str]) -> str:
    """Entropy, the sharpest head and the mass on marked tokens, in words."""
    weights = maps.weights[list(heads)]
    bits = entropy(weights).mean(-1)
    sharpest = int(bits.argmin())
    maximum = math.log2(max(2, len(maps.keys)))
    words = f"{maps.site}: mean attention entropy {float(bits.mean()):.2f} of at most {maximum:.2f} bits"
    if len(heads) > 1:
        words += f"; head {heads[sharpest] + 1} is the sharpest, with {float(bits[sharpest]):.2f}"
    if marked:
        wanted = torch.tensor([token in marked for token in maps.keys])
        words += f"; {float(attention_mass(weights, wanted).mean()):.1%} of the weight is on "
        words += f"{', '.join(map(repr, marked))}, {float(wanted.double().mean()):.1%} of the keys"
    return f"{words}."


def entropy_panel(found: Sequence[AttentionMaps]) -> Bars:
    names = [name for maps in found for name in _names(maps, found)]
    bits = torch.cat([entropy(maps.weights).mean(-1) for maps in found])
    return Bars(names, {"entropy": as_array(bits)}, "bits", title="Mean attention entropy of each head")


def attention_distance_panel(found: Sequence[AttentionMaps]) -> Lines:
    lines: dict[str, Curve] = {}
    for maps in found:
        lags, means = by_distance(maps.weights)
        lines |= {name: (lags, line) for name, line in zip(_names(maps, found), means, strict=True)}
    title = "Attention distance: mean weight by distance of the key (0: the query's own position)"
    shown = dict(list(lines.items())[:CURVES])
    return Lines(shown, "positions back", "mean weight", limits=(0, 1), title=title)


def pooling_panel(inspected: InspectedText) -> ColouredText | None:
    """Of a classifier with attention pooling: the weight of each token."""
    pooling = getattr(inspected.model, "pooling", None)
    if pooling is None or getattr(pooling, "kind", "") != "attention":
        return None
    seen = inspected.record("embedding", "*pooling*")
    if "pooling.weights" not in seen:  # a causal model predicts after every token: no weight is final
        return None
    weights = as_array(seen["pooling.weights"][0])
    return ColouredText(inspected.main, weights, title="Pooling weight of each token", quantity="attention")


def pooling_numbers(panel: ColouredText | None) -> dict[str, Numbers]:
    return {"pooling.weights": Numbers.of(panel.values, token=panel.tokens)} if panel else {}


def _names(maps: AttentionMaps, found: Sequence[AttentionMaps]) -> list[str]:
    layer = f"layer {found.index(maps) + 1}" if len(found) > 1 else ""
    return [" ".join(filter(None, [layer, head])) or "attention" for head in head_names(len(maps.weights))]


def alignment(model: Any, source: Ragged, target: Ragged) -> Tensor:
    """Cross-attention weights (batch, target time, heads, source positions), given the true target.

    The heads of all cross-attention layers follow each other; padding of either side is zero.
    """
    with inference_mode(model), taps.record("*cross-attention.weights") as seen:
        model(source, target)
    weights = torch.cat([seen[site] for site in seen], dim=2)
    real = target.mask()[:, :, None, None] & source.mask()[:, None, None, :]
    return weights.masked_fill(~real.to(weights.device), 0.0)


def attention_hits(weights: Tensor, places: Sequence[Sequence[int]]) -> float:
    """Alignment accuracy: share of target tokens whose largest weight, averaged over heads, is on the right token.

    `places` has the right source positions of the first target tokens of each row, as `Reversal.places` has.
    """
    looked = weights.mean(2).argmax(-1).tolist()
    right = [looked[row][time] == place for row, steps in enumerate(places) for time, place in enumerate(steps)]
    assert right, "no right positions given"
    return sum(right) / len(right)


def map_figure(weights: Tensor, source: Sequence[str], target: Sequence[str], title: str = "") -> Figure:
    """A row for each target token, a column for each source token.

    `weights` are (time, positions), or (time, heads, positions) for heads side by side; padding is left out.
    """
    weights = weights.detach().float().cpu()
    weights = weights.unsqueeze(1) if weights.dim() == 2 else weights
    assert weights.shape[0] >= len(target) > 0, f"{len(target)} tokens, and weights of {weights.shape[0]}"
    assert weights.shape[2] >= len(source) > 0, f"{len(source)} positions, and weights of {weights.shape[2]}"
    shown = as_array(weights[: len(target), :, : len(source)].transpose(0, 1))
    maps = dict(zip(head_names(len(shown)), shown, strict=True))
    return Figure(title, [HeatMap(maps, target, source, "target", "source", time="rows", quantity="attention")])
