"""Lab: word order, and the bag of words that ignores it."""

from elman.figures.figure import Figure
from elman.figures.panels import Bars
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.word_order import PHRASES, word_order_table


def experiment(seed: int, progress: Progress) -> Result:
    found = word_order_table(seed, progress)
    names = ["sentences", "pairs with both right"]
    bars = {one.name: [one.accuracy, one.pairs] for one in found}
    positive = {one.name: [*one.phrases.values()] for one in found}
    panels = [
        Bars(names, bars, "accuracy", (0, 1), title="200 test pairs of the same words in another order"),
        Bars(list(PHRASES), positive, "probability of positive", (0, 1), title="Two held-out phrases"),
    ]
    measured = {f"pairs right: {one.name}": one.pairs for one in found}
    measured |= {f"sentences right: {one.name}": one.accuracy for one in found}
    return Result([Figure("Word order", panels)], measured)


LAB = Lab(
    "word-order",
    "Bag of words",
    "Can a mean of word vectors distinguish “the film is good , not bad” from “the film is bad , not good”?",
    "It cannot: both sentences have the same words, so it gives both the same prediction and is right on exactly "
    "half of them. A recurrent model of the same size distinguishes them.",
    {
        "pairs right: recurrent (gru)": (0.9, 1.0),
        "pairs right: mean of word vectors": (0.0, 0.0),
        "sentences right: recurrent (gru)": (0.95, 1.0),
        "sentences right: mean of word vectors": (0.5, 0.5),
    },
    experiment,
    "On film reviews a mean of word vectors is accurate all the same: word order decides few of them.",
)
