"""Lab: a recurrent network is a state that is updated word by word."""

from dataclasses import replace

import torch

from elman.evaluation.inference_mode import inference_mode
from elman.inspection.labs.lab import Expected, Lab, Progress, Result
from elman.inspection.labs.reviews import Reviewer, train_reviewer
from elman.inspection.predictions import class_probability_panels
from elman.inspection.trace import trace

TEXTS = ("the movie was great", "the movie was not great", "the movie was not very awful")


def experiment(seed: int, progress: Progress) -> Result:
    reviewer = train_reviewer(seed, progress, every_token=True)
    figures, measured = [], {}
    for text in TEXTS:
        figure = trace(reviewer.reading(text)).figure("*.memory")
        panels = [*class_probability_panels(reviewer.reading(text)), *figure.panels]
        figures.append(replace(figure, title=f"“{text}”", panels=panels, of="LSTM of 16 units, trained at every word"))
        chances = positive(reviewer, text)
        measured[f"positive after {text.split()[-1]!r} of {text!r}"] = chances[-1]
    before = [positive(reviewer, text)[2] for text in TEXTS]
    measured["positive after 'the movie was'"] = sum(before) / len(before)
    return Result(figures, measured)


def positive(reviewer: Reviewer, text: str) -> list[float]:
    inspected = reviewer.reading(text)
    with inference_mode(reviewer.model):
        chances: torch.Tensor = inspected.run(1)[0].softmax(-1)
    return chances[:, reviewer.labels.numbers["positive"]].tolist()


LAB = Lab(
    "hidden-state",
    "RNN as state",
    "What does the state of an LSTM do while it reads “the movie was great”, and when does it know the verdict?",
    "It stays at one half until the adjective, then jumps: nothing before it says anything about the verdict. “not” "
    "moves the verdict hardly, but it changes the state, so that the same adjective later moves it the other way.",
    {
        "positive after 'great' of 'the movie was great'": Expected(0.95, 1.0),
        "positive after 'great' of 'the movie was not great'": Expected(0.0, 0.05),
        "positive after 'awful' of 'the movie was not very awful'": Expected(0.9, 1.0),
        "positive after 'the movie was'": Expected(0.4, 0.6),
    },
    experiment,
    "Trained on the last word only, the verdicts in between mean nothing: they were never asked for, and jump about.",
)
