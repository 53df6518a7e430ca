"""Lab: the bottleneck of encoder-decoders without attention."""

from elman.inspection.bottleneck import LENGTHS, alignment_figure, bottleneck_figure, run_bottleneck
from elman.inspection.labs.lab import Lab, Progress, Result


def experiment(seed: int, progress: Progress, *, budget: str = "quick", longest: int = LENGTHS[-1]) -> Result:
    found = run_bottleneck(budget, seed, sorted({*(one for one in LENGTHS if one < longest), longest}), progress)
    measured = {}
    for name, outcome in zip(("one vector", "attention"), found.outcomes, strict=True):
        for place, length in enumerate(found.lengths):
            measured[f"letter accuracy at length {length}, {name}"] = outcome.accuracy[place]
            if outcome.alignment is not None:
                measured[f"alignment accuracy at length {length}"] = outcome.alignment[place]
    return Result([bottleneck_figure(found), alignment_figure(found)], measured)


LAB = Lab(
    "bottleneck",
    "Sequence to sequence",
    "How long a source fits into a fixed context vector, and what does attention change? (The task is to reverse "
    "letters.)",
    "At this budget the fixed vector loses a third of the letters at length 5 and four fifths at length 20. With "
    "attention each letter is looked up in the source: the alignment is a clean anti-diagonal, and the longest "
    "training lengths are hardly harder than short ones.",
    {
        "letter accuracy at length 5, one vector": (0.5, 0.85),
        "letter accuracy at length 20, one vector": (0.1, 0.3),
        "letter accuracy at length 5, attention": (0.95, 1.0),
        "letter accuracy at length 20, attention": (0.8, 1.0),
        "alignment accuracy at length 20": (0.85, 1.0),
    },
    experiment,
    "Beyond the training lengths attention fails too, only later: its alignment does not generalise to unseen "
    "positions.",
    try_next={
        "longest=40": "What happens at twice the longest length of training?",
        "budget=full": "Does a larger model with more steps fit longer sources into its vector?",
    },
)
