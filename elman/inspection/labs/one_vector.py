"""Lab: the bottleneck of an encoder-decoder, and what attention changes."""

import numpy as np

from elman.inspection.bottleneck import run_bottleneck
from elman.inspection.bottleneck_figures import alignment_figures, bottleneck_figure
from elman.inspection.labs.lab import Expected, Lab, Progress, Result


def experiment(seed: int, progress: Progress) -> Result:
    found = run_bottleneck("quick", seed, progress=progress)
    fixed, looking = found.outcomes
    at = {length: place for place, length in enumerate(found.lengths)}
    measured = {
        "letters right at length 5, one vector": fixed.accuracy[at[5]],
        "letters right at length 20, one vector": fixed.accuracy[at[20]],
        "letters right at length 5, attention": looking.accuracy[at[5]],
        "letters right at length 20, attention": looking.accuracy[at[20]],
        "looks at the right letter, length 20": float(np.asarray(looking.attention_maps)[at[20]]),
    }
    return Result([bottleneck_figure(found), *alignment_figures(found)], measured)


LAB = Lab(
    "bottleneck",
    "Sequence to sequence",
    "How long a source can one vector hold, and what does attention change? (Letters are written backwards.)",
    "At this budget one vector loses a third of five letters and four fifths of twenty. With attention each letter is "
    "looked up where it stands: the map is a clean anti-diagonal, and sources as long as those of training are hardly "
    "harder than short ones.",
    {
        "letters right at length 5, one vector": Expected(0.5, 0.85),
        "letters right at length 20, one vector": Expected(0.1, 0.3),
        "letters right at length 5, attention": Expected(0.95, 1.0),
        "letters right at length 20, attention": Expected(0.8, 1.0),
        "looks at the right letter, length 20": Expected(0.85, 1.0),
    },
    experiment,
    "Beyond the lengths of training attention fails too, only later: it has learnt to look, but not everywhere.",
)
