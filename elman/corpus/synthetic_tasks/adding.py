"""The adding problem (Hochreiter & Schmidhuber, 1997): sum of two numbers over a long distance."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from elman.corpus.synthetic_tasks.base import TASKS, Claim, SyntheticExamples, SyntheticTask


@TASKS.register("adding")
class Adding(SyntheticTask):
    """Random numbers in [0, 1), one marked in each half; the target at the end is the sum of the marked ones.

    Published: the constant 1 has a squared error of 1/6. Simple recurrent networks stay there at 200 steps because of
    vanishing gradients; gated networks and dilated convolutions learn it (Hochreiter & Schmidhuber, 1997; Le et al.,
    2015; Bai et al., 2018).
    """

    measure = "squared error"
    chance, solved = 1 / 6, 0.01
    symbols, channels, answers = 0, 2, 0
    claims: ClassVar = [
        Claim("rnn", "fails"),
        Claim("gru", "solves"),
        Claim("lstm", "solves"),
        Claim("convolution", "solves"),
    ]
    quick: ClassVar = {"length": 100}

    class Config(SyntheticTask.Config):
        length: int = Field(200, ge=2)
        """Sequence length."""

    config: Config

    def draw(self, rng: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        length, half = self.config.length, self.config.length // 2
        numbers, marks = rng.random((rows, length)), np.zeros((rows, length))
        places = np.stack([rng.integers(0, half, rows), rng.integers(half, length, rows)], axis=1)
        np.put_along_axis(marks, places, 1.0, axis=1)
        targets, mask = np.zeros((rows, length)), np.zeros((rows, length), dtype=bool)
        targets[:, -1], mask[:, -1] = np.take_along_axis(numbers, places, axis=1).sum(axis=1), True
        return SyntheticExamples(np.stack([numbers, marks], axis=2), targets, mask)
