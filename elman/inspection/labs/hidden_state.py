"""Lab: the hidden state of a recurrent network, token by token."""

from dataclasses import replace

from elman.figures.panels import HeatMap, Lines
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.predictions import class_probability_panels
from elman.inspection.small_models import train_reviewer
from elman.inspection.trace import trace

TEXTS = ("the movie was great", "the movie was not great", "the movie was not very awful")


def experiment(seed: int, progress: Progress, *, units: int = 16, text: str = TEXTS[-1]) -> Result:
    reviewer = train_reviewer(seed, progress, every_token=True, hidden_size=units)
    figures, measured, before, subtitle = [], {}, [], f"LSTM with {units} units, trained at every word"
    for words in dict.fromkeys([*TEXTS[:-1], text]):
        inspected = reviewer.reading(words)
        figure = trace(inspected).figure("*.memory")
        (probabilities,) = class_probability_panels(inspected)
        assert isinstance(probabilities, Lines)
        positive = {"positive": probabilities.lines["positive"]}  # the other class is its mirror image
        curve = replace(probabilities, lines=positive, x_label="token", y_label="probability of positive")
        memory = [replace(panel, column_axis="token") for panel in figure.panels if isinstance(panel, HeatMap)]
        figures.append(replace(figure, title=f"“{words}”", panels=[curve, *memory], subtitle=subtitle))
        _, chances = positive["positive"]
        measured[f"positive after {words.split()[-1]!r} of {words!r}"] = chances[-1]
        before.append(chances[: len(["the", "movie", "was"])][-1])
    measured["positive after 'the movie was'"] = sum(before) / len(before)
    return Result(figures, measured)


LAB = Lab(
    "hidden-state",
    "Recurrent state",
    "How does the state of an LSTM change while it reads “the movie was great”, and when is the class decided?",
    "The probability stays at one half until the adjective, then jumps: no earlier word is informative. “not” "
    "hardly changes the prediction, but it changes the state, so that the same adjective later has the opposite "
    "effect.",
    {
        "positive after 'great' of 'the movie was great'": (0.95, 1.0),
        "positive after 'great' of 'the movie was not great'": (0.0, 0.05),
        "positive after 'awful' of 'the movie was not very awful'": (0.9, 1.0),
        "positive after 'the movie was'": (0.4, 0.6),
    },
    experiment,
    "Trained on the last word only, the intermediate predictions are meaningless: they were never part of the loss.",
    try_next={
        "text=the ending was not really bad": "Do two signs in a row, not and bad, give the right class?",
        "units=2": "Are two units enough, and can you read the state off the picture?",
    },
)
