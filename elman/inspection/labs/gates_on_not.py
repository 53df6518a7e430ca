"""Lab: what the gates of an LSTM do on “not”."""

from collections import defaultdict

import numpy as np

from elman.figures.figure import Figure
from elman.figures.panels import Bars
from elman.inspection.labs.lab import Expected, Lab, Progress, Result
from elman.inspection.labs.reviews import ADVERBS, BAD, GOOD, reviews, train_reviewer
from elman.inspection.trace import trace

KINDS = {"not": "not"} | dict.fromkeys(ADVERBS, "adverb") | dict.fromkeys((*GOOD, *BAD), "adjective")
SENTENCES = 400
GATES = ("forget", "input", "output")


def experiment(seed: int, progress: Progress) -> Result:
    reviewer = train_reviewer(seed, progress)
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for review in reviews(SENTENCES, seed + 1000):
        found = trace(reviewer.reading(review.text), ["*.gate.*"])
        for gate in GATES:
            means = found[f"layers.0.lstm.gate.{gate}"].mean(1).tolist()
            for word, mean in zip(review.text.split(), means, strict=True):
                values[gate, KINDS.get(word, "plain")].append(mean)
    kinds = ("plain", "not", "adverb", "adjective")
    bars = {gate: np.array([np.mean(values[gate, kind]) for kind in kinds]) for gate in GATES}
    shown = Bars(kinds, bars, "mean gate", (0, 1), title=f"Mean over units and {SENTENCES} new sentences")
    one = trace(reviewer.reading("the movie was not very great"), ["*.gate.forget"]).figure("*.gate.forget")
    forget = dict(zip(kinds, bars["forget"].tolist(), strict=True))
    measured = {
        "forget gate on 'not'": forget["not"],
        "on adverbs, above 'not' by": forget["adverb"] - forget["not"],
        "on plain words, above 'not' by": forget["plain"] - forget["not"],
    }
    return Result([Figure("Gates by kind of word", [shown]), Figure("One sentence", one.panels)], measured)


LAB = Lab(
    "gates-on-not",
    "LSTM gates",
    "Which gate of an LSTM acts on “not” in “the movie was not very great”?",
    "The forget gate: on “not” it closes further than on any other word before the adjective, so what was read before "
    "is cut; on adverbs, which change nothing, it is open, and the memory is held.",
    {
        "forget gate on 'not'": Expected(0.15, 0.5),
        "on adverbs, above 'not' by": Expected(0.15, 0.55),
        "on plain words, above 'not' by": Expected(0.1, 0.5),
    },
    experiment,
    "With the label trained at every word some seeds write “not” by the input gate instead of cutting by the forget "
    "gate. Cut, write, hold: see which of the three your seed uses. On real text promise no picture: "
    "measure the spread.",
)
