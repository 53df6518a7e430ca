"""Lab: the hidden state of a recurrent network, token by token."""

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
        figures.append(
            replace(figure, title=f"“{text}”", panels=panels, subtitle="LSTM with 16 units, trained at every word")
        )
        probs = positive(reviewer, text)
        measured[f"positive after {text.split()[-1]!r} of {text!r}"] = probs[-1]
    before = [positive(reviewer, text)[2] for text in TEXTS]
    measured["positive after 'the movie was'"] = sum(before) / len(before)
    return Result(figures, measured)


def positive(reviewer: Reviewer, text: str) -> list[float]:
    inspected = reviewer.reading(text)
    with inference_mode(reviewer.model):
        probs: torch.Tensor = inspected.run(1)[0].softmax(-1)
    return probs[:, reviewer.labels.numbers["positive"]].tolist()


LAB = Lab(
    "hidden-state",
    "Recurrent state",
    "How does the state of an LSTM change while it reads “the movie was great”, and when is the class decided?",
    "The probability stays at one half until the adjective, then jumps: no earlier word is informative. “not” "
    "hardly changes the prediction, but it changes the state, so that the same adjective later has the opposite "
    "effect.",
    {
        "positive after 'great' of 'the movie was great'": Expected(0.95, 1.0),
        "positive after 'great' of 'the movie was not great'": Expected(0.0, 0.05),
        "positive after 'awful' of 'the movie was not very awful'": Expected(0.9, 1.0),
        "positive after 'the movie was'": Expected(0.4, 0.6),
    },
    experiment,
    "Trained on the last word only, the intermediate predictions are meaningless: they were never part of the loss.",
)
