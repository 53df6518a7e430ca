"""The bottleneck as pictures and numbers in a folder."""

import json
from pathlib import Path

from elman.inspection.attention_map import alignment, draw_map
from elman.inspection.bottleneck import Bottleneck, reversal_batch, sources
from elman.runs.files import atomic_write

SHOWN = 20  # letters of the source that the picture of attention shows
COLOURS = ("#56B4E9", "#0072B2", "#E69F00", "#D55E00")  # told apart by colour-blind readers too


def save_bottleneck(found: Bottleneck, folder: Path) -> list[Path]:
    """Pictures of both, and last of all `bottleneck.json`, which says that the folder is complete."""
    paths = [*draw_bottleneck(found, folder), *draw_looks(found, folder), folder / "bottleneck.json"]
    atomic_write(paths[-1], json.dumps(found.plain(), indent=2).encode())
    return paths


def draw_bottleneck(found: Bottleneck, folder: Path) -> list[Path]:
    """Writes `bottleneck.svg` and `bottleneck.png`: letters right, and sources without a mistake, over their length."""
    from matplotlib.figure import Figure  # heavy: only when drawn, and without any global backend
    from matplotlib.ticker import NullLocator, PercentFormatter

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    titles = ("letters right, those before them given", "sources without a mistake")
    for axes, title, measure in zip(panels, titles, ("accuracy", "exact"), strict=True):
        axes.axvspan(*found.trained, color="#000000", alpha=0.06, lw=0)
        for number, outcome in enumerate(found.outcomes):
            with_attention = outcome.looks is not None
            colour = COLOURS[number if len(found.outcomes) > 2 else 3 * number]
            axes.plot(
                found.lengths,
                getattr(outcome, measure),
                color=colour,
                marker="o" if with_attention else "s",
                ls="-" if with_attention else "--",
                ms=5,
                label=outcome.reader if axes is panels[0] else None,
            )
        axes.set(xscale="log", ylim=(-0.03, 1.03), xlabel="letters of the source")
        axes.set_xticks(found.lengths, [str(length) for length in found.lengths])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_title(title, loc="left", fontsize="medium")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    middle = (found.trained[0] * found.trained[1]) ** 0.5
    panels[0].text(middle, -0.01, "lengths of training", ha="center", va="bottom", fontsize="small", color="#666666")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("Writing letters backwards: one vector against attention", x=0.01, ha="left")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "bottleneck.svg", folder / "bottleneck.png"]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def draw_looks(found: Bottleneck, folder: Path) -> list[Path]:
    """Writes `attention.svg` and `attention.png`: where the last reader with attention looks, letter by letter."""
    looking = [outcome for outcome in found.outcomes if outcome.looks is not None]
    if not looking:
        return []
    pairs = sources(SHOWN, 1, seed=found.seed)
    batch = reversal_batch(pairs)
    weights = alignment(looking[-1].model, batch.ragged("source"), batch.ragged("target"))[0]
    source, target = [*pairs[0].source, "<eos>"], [*pairs[0].target, "<eos>"]
    return draw_map(weights, source, target, folder / "attention", f"Where it looks: {looking[-1].reader}")
