"""Learning curves as pictures: training and validation loss over tokens, with the best possible loss if it is known."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"  # told apart by colour-blind readers too


def draw_curves(records: Sequence[Mapping[str, Any]], folder: Path, bound: float | None = None, title: str = "") -> list[Path]:
    """Writes `loss.svg` and `loss.png`; nothing where there is nothing to draw."""
    steps = [record for record in records if record["kind"] == "step" and record["loss"] is not None]
    checks = [record for record in records if record["kind"] == "validation"]
    if not steps:
        return []
    from matplotlib.figure import Figure  # heavy: only when drawn, and without any global backend

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([r["tokens"] for r in steps], [r["loss"] for r in steps], color=BLUE, lw=1, label="training")
    if checks:
        marker = "o" if len(checks) < 30 else None
        axes.plot([r["tokens"] for r in checks], [r["valid_loss"] for r in checks], color=ORANGE, marker=marker, ms=4, label="validation")
    if bound is not None:
        axes.axhline(bound, color=GREY, ls="--", lw=1, label=f"best possible ({bound:.3f})")
    lowest = min([r["loss"] for r in steps] + ([] if bound is None else [bound]))
    first = sorted(r["loss"] for r in steps)[-max(1, len(steps) // 50) :][0]
    axes.set_ylim(lowest - 0.05 * (first - lowest) - 1e-3, first * 1.02)
    axes.set(xlabel="training tokens", ylabel="loss (nats per token)", title=title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "loss.svg", folder / "loss.png"]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths
