"""Where a decoder looks: its weights under teacher forcing, how often they are right, and as a picture."""

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
    """Share of each place of the source at each word of a target that is known: (batch, time, heads, places).

    All layers that look at the source are there, their heads one after the other; zero at padding of either side.
    """
    with inference_mode(model), record("*cross-attention.weights") as seen:
        model(source, target)
    weights = torch.cat([seen[site] for site in seen], dim=2)
    real = target.mask()[:, :, None, None] & source.mask()[:, None, None, :]
    return weights.masked_fill(~real.to(weights.device), 0.0)


def attention_hits(weights: Tensor, places: Sequence[Sequence[int]]) -> float:
    """Share of steps whose largest weight, over the mean of all heads, is at the right place of the source.

    `places` tells for each row where each of its first words is to be looked for, as `Reversal.places` does.
    """
    looked = weights.mean(2).argmax(-1).tolist()
    right = [looked[row][time] == place for row, steps in enumerate(places) for time, place in enumerate(steps)]
    assert right, "no step says where to look"
    return sum(right) / len(right)


def draw_map(weights: Tensor, source: Sequence[str], target: Sequence[str], path: Path, title: str = "") -> list[Path]:
    """Writes `path` as .svg and .png."""
    figure = map_figure(weights, source, target, title)
    return [figure.save(path.with_suffix(suffix)) for suffix in (".svg", ".png")]


def map_figure(weights: Tensor, source: Sequence[str], target: Sequence[str], title: str = "") -> Figure:
    """A row for each written token, a column for each token of the source.

    `weights` are (time, places), or (time, heads, places) for heads side by side; padding is left out.
    """
    weights = weights.detach().float().cpu()
    weights = weights.unsqueeze(1) if weights.dim() == 2 else weights
    assert weights.shape[0] >= len(target) > 0, f"{len(target)} tokens, and weights of {weights.shape[0]}"
    assert weights.shape[2] >= len(source) > 0, f"{len(source)} places, and weights of {weights.shape[2]}"
    names = [""] if weights.shape[1] == 1 else [f"head {head + 1}" for head in range(weights.shape[1])]
    shown = weights[: len(target), :, : len(source)].double().numpy()
    maps = {name: shown[:, head] for head, name in enumerate(names)}
    return Figure(title, [HeatMap(maps, target, source, time="rows", quantity="attention")])
