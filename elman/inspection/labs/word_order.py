"""Lab: who tells “good, not bad” from “bad, not good”."""

import numpy as np

from elman.figures.figure import Figure
from elman.figures.panels import Bars
from elman.inspection.labs.lab import Expected, Lab, Progress, Result
from elman.inspection.word_order import PHRASES, word_order_table


def experiment(seed: int, progress: Progress) -> Result:
    found = word_order_table(seed, progress)
    names = ["sentences right", "pairs with both right"]
    bars = {one.reader: np.array([one.accuracy, one.pairs]) for one in found}
    said = {one.reader: np.array(list(one.phrases.values())) for one in found}
    panels = [
        Bars(names, bars, "share", (0, 1), title="200 new pairs of the same words in another order"),
        Bars(list(PHRASES), said, "probability of positive", (0, 1), title="Two phrases that were left out"),
    ]
    measured = {f"pairs right: {one.reader}": one.pairs for one in found}
    measured |= {f"sentences right: {one.reader}": one.accuracy for one in found}
    return Result([Figure("Word order", panels)], measured)


LAB = Lab(
    "word-order",
    "Bag of words",
    "Does a mean of word vectors know “the film is good , not bad” from “the film is bad , not good”?",
    "It cannot: both have the same words, so it gives both one answer and is right on half of them, exactly. A "
    "recurrent model of the same size tells them apart.",
    {
        "pairs right: recurrent (gru)": Expected(0.9, 1.0),
        "pairs right: mean of word vectors": Expected(0.0, 0.0),
        "sentences right: recurrent (gru)": Expected(0.95, 1.0),
        "sentences right: mean of word vectors": Expected(0.5, 0.5),
    },
    experiment,
    "On reviews of films a mean of word vectors does well all the same: most of them are not about order.",
)
