"""Alignment of encoder-decoders: cross-attention under teacher forcing, its accuracy, and its map."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elman.batches import Ragged
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import HeatMap
from elman.ops.taps import record


def alignment(model: Any, source: Ragged, target: Ragged) -> Tensor:
    """Cross-attention weights (batch, target time, heads, source positions), given the true target.

    The heads of all cross-attention layers follow each other; padding of either side is zero.
    """
    with inference_mode(model), record("*cross-attention.weights") as seen:
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


def draw_map(weights: Tensor, source: Sequence[str], target: Sequence[str], path: Path, title: str = "") -> list[Path]:
    """Saves the alignment map at `path` as .svg and .png."""
    figure = map_figure(weights, source, target, title)
    return [figure.save(path.with_suffix(suffix)) for suffix in (".svg", ".png")]


def map_figure(weights: Tensor, source: Sequence[str], target: Sequence[str], title: str = "") -> Figure:
    """A row for each target token, a column for each source token.

    `weights` are (time, positions), or (time, heads, positions) for heads side by side; padding is left out.
    """
    weights = weights.detach().float().cpu()
    weights = weights.unsqueeze(1) if weights.dim() == 2 else weights
    assert weights.shape[0] >= len(target) > 0, f"{len(target)} tokens, and weights of {weights.shape[0]}"
    assert weights.shape[2] >= len(source) > 0, f"{len(source)} positions, and weights of {weights.shape[2]}"
    names = [""] if weights.shape[1] == 1 else [f"head {head + 1}" for head in range(weights.shape[1])]
    shown = weights[: len(target), :, : len(source)].double().numpy()
    maps = {name: shown[:, head] for head, name in enumerate(names)}
    return Figure(title, [HeatMap(maps, target, source, time="rows", quantity="attention")])
