"""Learning curves of a run: training and validation loss over tokens, with the entropy bound where it is known."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elman.figures.figure import Figure
from elman.figures.panels import Curve, Lines

NOISY = 60  # points from which on the training loss is drawn pale beneath its moving average

Points = list[tuple[int, float]]


def save_learning_curves(
    records: Sequence[Mapping[str, Any]], folder: Path, bound: float | None = None, title: str = ""
) -> list[Path]:
    """Writes `loss.svg` and `loss.png` from the records of metrics.jsonl; nothing without a training loss."""
    training, validation = _points(records, "step", "loss"), _points(records, "validation", "valid_loss")
    if not training:
        return []
    noisy = len(training) >= NOISY
    smooth = _moving_average(training, len(training) // 25) if noisy else training
    panel = Lines(
        {"training": _curve(smooth)} | ({"validation": _curve(validation)} if validation else {}),
        "training tokens",
        "loss (nats per token)",
        limits=_limits(training, validation, bound),
        raw={"training": _curve(training)} if noisy else {},
        references={} if bound is None else {f"entropy of the language {bound:.3f}": bound},
        size=(7, 4),
    )
    return Figure(title, [panel]).save_images(folder / "loss")


def _curve(points: Points) -> Curve:
    tokens, losses = zip(*points, strict=True)
    return tokens, losses


def _points(records: Sequence[Mapping[str, Any]], kind: str, key: str) -> Points:
    found = [(record["tokens"], record[key]) for record in records if record["kind"] == kind]
    return [(tokens, loss) for tokens, loss in found if loss is not None and math.isfinite(loss)]


def _moving_average(points: Points, window: int) -> Points:
    """Over up to `window` points on each side; over fewer at the start, where the loss falls steeply."""
    means = []
    for index, (tokens, _) in enumerate(points):
        reach = min(window, index // 4)
        near = [loss for _, loss in points[index - reach : index + reach + 1]]
        means.append((tokens, sum(near) / len(near)))
    return means


def _limits(training: Points, validation: Points, bound: float | None) -> tuple[float, float]:
    """Of y: without the first twentieth of the training, whose steep fall would flatten all else."""
    settled = [loss for _, loss in training[len(training) // 20 :] + validation]
    low, high = min([*settled, *([] if bound is None else [bound])]), max(settled)
    height = max(high - low, 1e-3)
    return low - 0.1 * height, high + 0.05 * height
