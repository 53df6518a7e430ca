"""Lab: the hidden state of a recurrent network, token by token."""

from dataclasses import replace

from elman.figures.panels import Lines
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.predictions import class_probability_panels
from elman.inspection.small_models import train_reviewer
from elman.inspection.trace import trace

TEXTS = ("the movie was great", "the movie was not great", "the movie was not very awful")


def experiment(seed: int, progress: Progress) -> Result:
    reviewer = train_reviewer(seed, progress, every_token=True)
    figures, measured, before, subtitle = [], {}, [], "LSTM with 16 units, trained at every word"
    for text in TEXTS:
        inspected = reviewer.reading(text)
        figure = trace(inspected).figure("*.memory")
        (probabilities,) = class_probability_panels(inspected)
        assert isinstance(probabilities, Lines)
        figures.append(replace(figure, title=f"“{text}”", panels=[probabilities, *figure.panels], subtitle=subtitle))
        _, positive = probabilities.lines["positive"]
        measured[f"positive after {text.split()[-1]!r} of {text!r}"] = positive[-1]
        before.append(positive[2])
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
)
