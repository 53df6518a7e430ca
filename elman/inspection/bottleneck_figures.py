"""The bottleneck as pictures and numbers in a folder."""

import json
from pathlib import Path

import numpy as np

from elman.figures.figure import Figure
from elman.figures.panels import Lines
from elman.inspection.attention_map import alignment, map_figure
from elman.inspection.bottleneck import Bottleneck, reversal_batch, sources
from elman.runs.files import atomic_write

SHOWN = 20  # letters of the source that the picture of attention shows
MEASURES = {"accuracy": "Letters right, those before them given", "exact": "Sources without a mistake"}


def save_bottleneck(found: Bottleneck, folder: Path, command: str = "") -> list[Path]:
    """Pictures of both with the command, and last of all `bottleneck.json`, which says that the folder is complete."""
    figures = {"bottleneck": [bottleneck_figure(found)], "attention": alignment_figures(found)}
    paths = [
        figure.by(command).save(folder / f"{name}.{kind}")
        for name, some in figures.items()
        for figure in some
        for kind in ("svg", "png")
    ]
    paths.append(folder / "bottleneck.json")
    atomic_write(paths[-1], json.dumps(found.plain(), indent=2).encode())
    return paths


def bottleneck_figure(found: Bottleneck) -> Figure:
    """Letters right, and sources without a mistake, over their length."""
    lengths = np.array(found.lengths)
    panels = [
        Lines(
            {one.reader: (lengths, np.array(getattr(one, measure))) for one in found.outcomes},
            "letters of the source",
            "share",
            "x",
            limits=(-0.03, 1.03),
            shaded=found.trained,
            shade_name="lengths of training",
            title=title,
        )
        for measure, title in MEASURES.items()
    ]
    return Figure("Writing letters backwards: one vector against attention", panels)


def alignment_figures(found: Bottleneck) -> list[Figure]:
    """Where the last reader with attention looks, letter by letter; nothing if none has attention."""
    looking = [outcome for outcome in found.outcomes if outcome.attention_maps is not None]
    if not looking:
        return []
    pairs = sources(SHOWN, 1, seed=found.seed)
    batch = reversal_batch(pairs)
    weights = alignment(looking[-1].model, batch.ragged("source"), batch.ragged("target"))[0]
    source, target = [*pairs[0].source, "<eos>"], [*pairs[0].target, "<eos>"]
    return [map_figure(weights, source, target, f"Where it looks: {looking[-1].reader}")]
