"""Learning curves as pictures: training and validation loss over tokens, with the best possible loss if it is known."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elman.figures.scales import BLUE, GREY, ORANGE

NOISY = 60  # from so many points on, the training curve is drawn pale with its running mean on top

Points = list[tuple[int, float]]


def draw_curves(
    records: Sequence[Mapping[str, Any]], folder: Path, bound: float | None = None, title: str = ""
) -> list[Path]:
    """Writes `loss.svg` and `loss.png`; nothing where there is nothing to draw."""
    steps, checks = _points(records, "step", "loss"), _points(records, "validation", "valid_loss")
    if not steps:
        return []
    from matplotlib.figure import Figure  # heavy: only when drawn, and without any global backend
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    noisy = len(steps) >= NOISY
    axes.plot(
        *zip(*steps, strict=True), color=BLUE, lw=1, alpha=0.3 if noisy else 1, label=None if noisy else "training"
    )
    if noisy:
        axes.plot(*zip(*_running_mean(steps, len(steps) // 25), strict=True), color=BLUE, lw=1.5, label="training")
    if checks:
        marker = "o" if len(checks) < 30 else None
        axes.plot(*zip(*checks, strict=True), color=ORANGE, marker=marker, ms=4, label="validation")
    bottom, top = _limits(steps, checks, bound)
    axes.set_ylim(bottom, top)
    if bound is not None:
        axes.axhline(bound, color=GREY, ls="--", lw=1)
        across = axes.get_yaxis_transform()  # from 0 to 1 along the picture, by loss upwards
        below = bound - 0.01 * (top - bottom)
        axes.text(0, below, f" best possible {bound:.3f}", transform=across, va="top", color=GREY, fontsize="small")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set(xlabel="training tokens", ylabel="loss (nats per token)")
    axes.set_title(title, loc="left")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "loss.svg", folder / "loss.png"]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def _points(records: Sequence[Mapping[str, Any]], kind: str, value: str) -> Points:
    found = [(record["tokens"], record[value]) for record in records if record["kind"] == kind]
    return [(tokens, loss) for tokens, loss in found if loss is not None and math.isfinite(loss)]


def _running_mean(points: Points, window: int) -> Points:
    """Over up to `window` points on each side; over fewer at the start, whose fall it would blur."""
    means = []
    for index, (tokens, _) in enumerate(points):
        reach = min(window, index // 4)
        near = [loss for _, loss in points[index - reach : index + reach + 1]]
        means.append((tokens, sum(near) / len(near)))
    return means


def _limits(steps: Points, checks: Points, bound: float | None) -> tuple[float, float]:
    """All losses but those of the first twentieth, whose fall would leave the rest a flat line; room for a label."""
    settled = [loss for _, loss in steps[len(steps) // 20 :]] + [loss for _, loss in checks]
    low = min([*settled, *([] if bound is None else [bound])])
    high = max(settled)
    height = max(high - low, 1e-3)
    return low - 0.1 * height, high + 0.05 * height
