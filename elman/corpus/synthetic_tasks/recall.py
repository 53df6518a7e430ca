"""Multi-query associative recall (Arora et al., 2023): look up the value of a key."""

from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from elman.corpus.synthetic_tasks.base import TASKS, Claim, SyntheticExamples, SyntheticTask, distinct


@TASKS.register("recall")
class Recall(SyntheticTask):
    """Pairs of key and value, then every key again in random order; the target at each is its value.

    Published: attention recalls any number of pairs at any width; models with a fixed-size state have limited capacity,
    and input-independent convolutions are worse still (Arora et al., 2023, "Zoology"; Jelassi et al., 2024).
    """

    solved = 0.95
    claims: ClassVar = [
        Claim("attention", "solves"),
        Claim("attention", "beats", "rnn"),
        Claim("attention", "beats", "lstm"),
        Claim("attention", "beats", "s4d"),
        Claim("attention", "beats", "convolution"),
    ]
    quick: ClassVar = {"pairs": 8, "keys": 16, "values": 16}

    class Config(SyntheticTask.Config):
        pairs: int = Field(16, ge=1)
        """Number of pairs, with distinct keys."""
        keys: int = Field(32, ge=1)
        """Number of possible keys."""
        values: int = Field(32, ge=2)
        """Number of possible values, disjoint from the keys."""

        @model_validator(mode="after")
        def _fits(self) -> "Recall.Config":
            if self.pairs > self.keys:
                raise ValueError(f"{self.pairs} pairs need as many distinct keys, but keys is {self.keys}")
            return self

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        self.symbols, self.answers, self.chance = config.keys + config.values, config.values, 1 / config.values

    def draw(self, rng: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        pairs = self.config.pairs
        keys = distinct(rng, rows, self.config.keys, pairs)
        values = rng.integers(0, self.config.values, (rows, pairs))
        order = distinct(rng, rows, pairs, pairs)
        shown = np.stack([keys, self.config.keys + values], axis=2).reshape(rows, 2 * pairs)
        inputs = np.concatenate([shown, np.take_along_axis(keys, order, axis=1)], axis=1)
        targets, mask = np.zeros_like(inputs), np.zeros(inputs.shape, dtype=bool)
        targets[:, 2 * pairs :], mask[:, 2 * pairs :] = np.take_along_axis(values, order, axis=1), True
        return SyntheticExamples(inputs, targets, mask)
