"""Lab: the bottleneck of an encoder-decoder, and what attention changes."""

import numpy as np

from elman.inspection.bottleneck import run_bottleneck
from elman.inspection.bottleneck_picture import bottleneck_figure, looks_figure
from elman.inspection.labs.lab import Expected, Lab, Listen, Result


def experiment(seed: int, listen: Listen) -> Result:
    found = run_bottleneck("quick", seed, listen=listen)
    fixed, looking = found.outcomes
    at = {length: place for place, length in enumerate(found.lengths)}
    measured = {
        "letters right at length 5, one vector": fixed.accuracy[at[5]],
        "letters right at length 20, one vector": fixed.accuracy[at[20]],
        "letters right at length 5, attention": looking.accuracy[at[5]],
        "letters right at length 20, attention": looking.accuracy[at[20]],
        "looks at the right letter, length 20": float(np.asarray(looking.looks)[at[20]]),
    }
    return Result([bottleneck_figure(found), *looks_figure(found)], measured)


LAB = Lab(
    "bottleneck",
    "Sequence to sequence",
    "How long a source can one vector hold, and what does attention change? (Letters are written backwards.)",
    "One vector loses letters from about ten on, and all of them long before 200. With attention each letter is looked "
    "up where it stands: the map is a clean anti-diagonal, and sources of the lengths of training are no problem.",
    {
        "letters right at length 5, one vector": Expected(0.3, 1.0),
        "letters right at length 20, one vector": Expected(0.05, 0.5),
        "letters right at length 5, attention": Expected(0.85, 1.0),
        "letters right at length 20, attention": Expected(0.6, 1.0),
        "looks at the right letter, length 20": Expected(0.6, 1.0),
    },
    experiment,
    "Beyond the lengths of training attention fails too, only later: it has learnt to look, but not everywhere.",
)
