"""Lab: LSTM gate activations on negation."""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from elman.figures.figure import Figure
from elman.figures.panels import Bars, HeatMap
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.small_models import ADVERBS, BAD, GOOD, reviews, train_reviewer
from elman.inspection.trace import trace

WORD_CLASSES = {"not": "not"} | dict.fromkeys(ADVERBS, "adverb") | dict.fromkeys((*GOOD, *BAD), "adjective")
SENTENCE = "the movie was not very great"
GATES = ("forget", "input", "output")


def experiment(seed: int, progress: Progress, *, units: int = 16, sentences: int = 400, text: str = SENTENCE) -> Result:
    reviewer = train_reviewer(seed, progress, hidden_size=units)
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for review in reviews(sentences, seed + 1000):
        found = trace(reviewer.reading(review.text), ["*.gate.*"])
        for gate in GATES:
            means = found[f"layers.0.lstm.gate.{gate}"].mean(1).tolist()
            for word, mean in zip(review.text.split(), means, strict=True):
                values[gate, WORD_CLASSES.get(word, "plain")].append(mean)
    classes = ("plain", "not", "adverb", "adjective")
    bars = {gate: [float(np.mean(values[gate, name])) for name in classes] for gate in GATES}
    shown = Bars(classes, bars, "mean activation", (0, 1), title=f"Mean over units and {sentences} new sentences")
    one = trace(reviewer.reading(text), ["*.gate.forget"]).figure("*.gate.forget")
    panels = [replace(panel, column_axis="token") for panel in one.panels if isinstance(panel, HeatMap)]
    forget = dict(zip(classes, bars["forget"], strict=True))
    measured = {
        "forget gate on 'not'": forget["not"],
        "adverbs minus 'not'": forget["adverb"] - forget["not"],
        "plain words minus 'not'": forget["plain"] - forget["not"],
    }
    return Result([Figure("Gate activation by word class", [shown]), Figure("One sentence", panels)], measured)


LAB = Lab(
    "gates-on-not",
    "LSTM gates",
    "Which gate of an LSTM responds to “not” in “the movie was not very great”?",
    "The forget gate: on “not” it closes more than on any other word before the adjective, which erases part of "
    "the memory; on adverbs, which do not change the label, it stays open and the memory is kept.",
    {
        "forget gate on 'not'": (0.15, 0.5),
        "adverbs minus 'not'": (0.15, 0.55),
        "plain words minus 'not'": (0.1, 0.5),
    },
    experiment,
    "Trained with the label at every word, some seeds write “not” with the input gate instead of erasing with the "
    "forget gate. On real text expect no such clear figure: measure the spread over sentences and seeds.",
    try_next={
        "units=4": "Does the forget gate still do it with four units?",
        "text=the plot was not so clever": "Is it the same in another sentence?",
    },
)
