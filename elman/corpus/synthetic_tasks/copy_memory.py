"""Copy memory (Hochreiter & Schmidhuber, 1997, as posed by Arjovsky et al., 2016): repeat symbols after a delay."""

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from elman.corpus.synthetic_tasks.base import TASKS, Claim, SyntheticExamples, SyntheticTask

BLANK = 0


@TASKS.register("copy-memory")
class CopyMemory(SyntheticTask):
    """Ten symbols, many blanks, a signal; the target is the ten symbols after the signal, and blanks before.

    Published: a memoryless model has 10 · log 8 / (blanks + 20) nats. Simple recurrent networks and, from a few hundred
    blanks on, LSTMs stay there; unitary matrices (Arjovsky et al., 2016), dilated convolutions (Bai et al., 2018) and
    attention reach zero.
    """

    measure = "nats"
    claims: ClassVar = [
        Claim("rnn", "fails"),
        Claim("convolution", "solves"),
        Claim("attention", "solves"),
        Claim("convolution", "beats", "lstm"),
    ]
    quick: ClassVar = {"blanks": 50}

    class Config(SyntheticTask.Config):
        blanks: int = Field(100, ge=1)
        """Steps between the last symbol and the first answer (T)."""
        content: int = Field(10, ge=1)
        """Number of symbols to remember."""
        alphabet: int = Field(8, ge=2)
        """Number of distinct symbols."""

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        self.symbols, self.answers = config.alphabet + 2, config.alphabet + 1
        self.chance = config.content * math.log(config.alphabet) / (config.blanks + 2 * config.content)
        self.solved = self.chance / 10

    def draw(self, rng: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        blanks, content = self.config.blanks, self.config.content
        kept = rng.integers(1, self.config.alphabet + 1, (rows, content))
        inputs = np.full((rows, blanks + 2 * content), BLANK)
        targets = inputs.copy()
        inputs[:, :content], targets[:, -content:] = kept, kept
        inputs[:, -content - 1] = self.config.alphabet + 1  # the signal, the last of the blanks
        return SyntheticExamples(inputs, targets, np.ones(inputs.shape, dtype=bool))
