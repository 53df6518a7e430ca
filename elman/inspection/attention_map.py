"""Where a decoder looks: its weights under teacher forcing, how often they are right, and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elman.batches import Ragged
from elman.evaluation.still import still
from elman.inspection.glyphs import drawable, families, label
from elman.ops.taps import record

COLOURS, PALE = "Blues", "#CCCCCC"  # darker is more, to colour-blind eyes and in print too
POINTS = 72  # in an inch
CELL, FINEST, LINED = 0.27, 0.03, 0.12  # inches: a cell at its largest, at its smallest, and the least to have lines
WIDEST, TALLEST = 16.0, 16.0  # inches for all cells
ABREAST = 4  # heads in a row
SMALLEST, STEPS = 5.0, (1, 2, 5, 10, 20, 50, 100)  # points of a label, and which labels are left where they are smaller


def alignment(model: Any, source: Ragged, target: Ragged) -> Tensor:
    """Share of each place of the source at each word of a target that is known: (batch, time, heads, places).

    All layers that look at the source are there, their heads one after the other; zero at padding of either side.
    """
    with still(model), record("*cross-attention.weights") as seen:
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
    """Writes `path` as .svg and .png: a row for each written token, a column for each token of the source.

    `weights` are (time, places), or (time, heads, places) for heads side by side; padding is left out.
    """
    weights = weights.detach().float().cpu()
    weights = weights.unsqueeze(1) if weights.dim() == 2 else weights
    assert weights.shape[0] >= len(target) > 0, f"{len(target)} tokens, and weights of {weights.shape[0]}"
    assert weights.shape[2] >= len(source) > 0, f"{len(source)} places, and weights of {weights.shape[2]}"
    import matplotlib
    from matplotlib.figure import Figure  # heavy: only when drawn, and without any global backend

    rows, columns = [label(token) for token in target], [label(token) for token in source]
    title, heads = drawable(title), weights.shape[1]
    across = min(heads, ABREAST)
    cell = max(min(CELL, WIDEST / (across * len(columns)), TALLEST / len(rows)), FINEST)
    down = -(-heads // across)
    wide, high = max(across * cell * len(columns), 2.5), max(down * cell * len(rows), 1.5)
    with matplotlib.rc_context({"font.family": families([*rows, *columns, title])}):
        figure = Figure(figsize=(wide + 2 + 0.3 * across, high + 0.8 + 0.5 * down), layout="constrained")
        panels = figure.subplots(down, across, sharey=True, squeeze=False)
        for head, axes in enumerate(panels.flat):
            if head >= heads:
                axes.set_visible(False)
                continue
            shown = weights[: len(rows), head, : len(columns)].numpy()
            image = axes.imshow(shown, cmap=COLOURS, vmin=0, vmax=1, aspect="equal", interpolation="nearest")
            axes.xaxis.tick_top()
            _name(axes.xaxis, columns, cell)
            _name(axes.yaxis, rows, cell)
            axes.tick_params(length=0)
            axes.spines[:].set_color(PALE)
            if cell >= LINED:
                lines: Any = {"color": PALE, "lw": 0.5}
                axes.vlines([place + 0.5 for place in range(len(columns) - 1)], -0.5, len(rows) - 0.5, **lines)
                axes.hlines([place + 0.5 for place in range(len(rows) - 1)], -0.5, len(columns) - 0.5, **lines)
            if heads > 1:
                axes.set_xlabel(f"head {head + 1}")
        bar = figure.colorbar(image, ax=panels, fraction=0.03, shrink=min(1.0, 2.5 / high), aspect=15)
        bar.outline.set_edgecolor(PALE)
        bar.set_label("attention")
        if title:
            figure.suptitle(title, x=0.01, ha="left", parse_math=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        paths = [path.with_suffix(".svg"), path.with_suffix(".png")]
        for name in paths:
            figure.savefig(name, dpi=150, bbox_inches="tight")  # square cells shift, and labels with them
    return paths


def _name(axis: Any, labels: list[str], cell: float) -> None:
    """Labels that fit: smaller where cells are, and only every second or fifth where they would be too small."""
    size = min(9.0, 0.72 * POINTS * cell)
    every = next(step for step in STEPS if step * size >= SMALLEST or step == STEPS[-1])
    shown = labels[::every]
    axis.set_ticks(range(0, len(labels), every), shown, fontsize=max(size, SMALLEST), parse_math=False)
    if axis.axis_name == "x":
        long = [len(name) > 2 for name in shown]
        words = sum(long) > len(long) / 5
        for text, turned in zip(axis.get_ticklabels(), long, strict=True):
            text.set_rotation(90 if turned or words else 0)
