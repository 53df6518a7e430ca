"""Parity of the bits so far: one bit of state, flipped by the input."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from elman.corpus.synthetic_tasks.base import TASKS, Claim, SyntheticExamples, SyntheticTask


@TASKS.register("parity")
class Parity(SyntheticTask):
    """After each bit, whether the number of ones so far is odd; tested on longer prefixes than in training.

    Published: networks with a nonlinear recurrence learn it and generalize to any length; transformers stay at chance
    on longer inputs (Hahn, 2020; Delétang et al., 2023, 100 % against 50 %). So do layers with a linear recurrence and
    positive decays, such as minimal gates, S4 and Mamba (Merrill et al., 2024; Grazzi et al., 2024), and any layer with
    a bounded window.
    """

    chance, solved = 0.5, 0.99
    symbols = answers = 2
    claims: ClassVar = [
        Claim("rnn", "solves"),
        Claim("lstm", "solves"),
        Claim("attention", "fails"),
        Claim("convolution", "fails"),
        Claim("mingru", "fails"),
        Claim("mamba", "fails"),
    ]

    class Config(SyntheticTask.Config):
        train_length: int = Field(40, ge=1)
        """Bits per training row; every prefix is a target."""
        test_length: int = Field(500, ge=2)
        """Bits per test row; only prefixes longer than train_length are targets."""

    config: Config

    def draw(self, rng: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        length = max(self.config.test_length, self.config.train_length + 1) if test else self.config.train_length
        bits = rng.integers(0, 2, (rows, length))
        mask = np.arange(length) >= (self.config.train_length if test else 0)
        return SyntheticExamples(bits, bits.cumsum(axis=1) % 2, np.broadcast_to(mask, bits.shape))
