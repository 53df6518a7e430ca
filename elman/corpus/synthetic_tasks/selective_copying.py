"""Selective copying (Gu & Dao, 2023): remember symbols at random positions among noise."""

from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from elman.corpus.synthetic_tasks.base import TASKS, Claim, SyntheticExamples, SyntheticTask, distinct

NOISE, NOW, FIRST = 0, 1, 2  # symbol ids: noise, query, first content symbol


@TASKS.register("selective-copying")
class SelectiveCopying(SyntheticTask):
    """Symbols at random positions among noise; the target at the end is their sequence.

    Published: a time-invariant state space cannot distinguish symbols from noise when it writes (S4, 18 % at length
    4096), an input-dependent one can (Mamba, 97 % and more; Gu & Dao, 2023); minimal gates too (minGRU and minLSTM with
    three layers, 97 to 99 %; Feng et al., 2024).
    """

    solved = 0.95
    claims: ClassVar = [Claim("mamba", "solves"), Claim("mamba", "beats", "s4d"), Claim("mingru", "beats", "s4d")]
    quick: ClassVar = {"length": 24, "content": 4}

    class Config(SyntheticTask.Config):
        length: int = Field(64, ge=1)
        """Positions before the answer, most of them noise."""
        content: int = Field(8, ge=1)
        """Number of symbols to remember."""
        alphabet: int = Field(14, ge=2)
        """Number of distinct symbols."""

        @model_validator(mode="after")
        def _fits(self) -> "SelectiveCopying.Config":
            if self.content > self.length:
                raise ValueError(f"{self.content} symbols do not fit into {self.length} places; raise length")
            return self

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        self.symbols, self.answers, self.chance = FIRST + config.alphabet, config.alphabet, 1 / config.alphabet

    def draw(self, rng: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        length, content = self.config.length, self.config.content
        kept = rng.integers(0, self.config.alphabet, (rows, content))
        inputs = np.full((rows, length + content), NOISE)
        places = np.sort(distinct(rng, rows, length, content))
        np.put_along_axis(inputs, places, FIRST + kept, axis=1)
        inputs[:, length:] = NOW
        targets, mask = np.zeros_like(inputs), np.zeros(inputs.shape, dtype=bool)
        targets[:, length:], mask[:, length:] = kept, True
        return SyntheticExamples(inputs, targets, mask)
