"""Figures of the bottleneck experiment, and its results as JSON."""

import json
from pathlib import Path

from elman.figures.figure import Figure
from elman.figures.panels import SHARE, Lines
from elman.inspection.attention_map import alignment, map_figure
from elman.inspection.bottleneck import Bottleneck, reversal_batch, sources
from elman.runs.files import atomic_write

SHOWN = 20  # letters of the source in the alignment map
MEASURES = {"accuracy": "Letter accuracy under teacher forcing", "exact": "Exact match of whole sources"}


def save_bottleneck(found: Bottleneck, folder: Path, command: str = "") -> list[Path]:
    """Saves the figures, and last of all `bottleneck.json`, which marks the folder as complete."""
    figures = {"bottleneck": [bottleneck_figure(found)], "attention": alignment_figures(found)}
    paths = [
        figure.with_command(command).save(folder / f"{name}.{suffix}")
        for name, some in figures.items()
        for figure in some
        for suffix in ("svg", "png")
    ]
    paths.append(folder / "bottleneck.json")
    atomic_write(paths[-1], json.dumps(found.plain(), indent=2).encode())
    return paths


def bottleneck_figure(found: Bottleneck) -> Figure:
    """Letter accuracy and exact match over the length of the source."""
    panels = [
        Lines(
            {one.name: (found.lengths, getattr(one, measure)) for one in found.outcomes},
            "source length (letters)",
            "accuracy",
            "x",
            limits=SHARE,
            x_span=found.trained,
            x_span_label="training lengths",
            title=title,
        )
        for measure, title in MEASURES.items()
    ]
    return Figure("Sequence reversal: fixed context vector against attention", panels)


def alignment_figures(found: Bottleneck) -> list[Figure]:
    """The alignment map of the last architecture with attention; none where no one has it."""
    aligned = [outcome for outcome in found.outcomes if outcome.alignment is not None]
    if not aligned:
        return []
    pairs = sources(SHOWN, 1, seed=found.seed)
    batch = reversal_batch(pairs)
    weights = alignment(aligned[-1].model, batch.ragged("source"), batch.ragged("target"))[0]
    source, target = [*pairs[0].source, "<eos>"], [*pairs[0].target, "<eos>"]
    return [map_figure(weights, source, target, f"Alignment: {aligned[-1].name}")]
