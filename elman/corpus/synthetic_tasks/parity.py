"""Parity: is the number of ones so far odd? One bit of state, changed by the input: the smallest thing to track."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from elman.corpus.synthetic_tasks.base import TASKS, Claim, SyntheticExamples, SyntheticTask


@TASKS.register("parity")
class Parity(SyntheticTask):
    """After each bit, whether the ones so far are odd; tested on prefixes longer than any in training.

    Published: recurrent networks whose next state depends on the last one through a nonlinearity learn it and hold it
    at any length; transformers stay at chance on longer inputs (Hahn, 2020; Delétang et al., 2023, 100 % against
    50 %). So do layers that are linear in their state with positive shares, minimal gates, S4 and Mamba among them
    (Merrill et al., 2024; Grazzi et al., 2024), and whatever sees a bounded window.
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
        """Bits of a training row; every prefix is mask, so this is the longest input that is trained."""
        test_length: int = Field(500, ge=2)
        """Bits of a test row; only prefixes longer than train_length are mask."""

    config: Config

    def draw(self, rng: np.random.Generator, rows: int, test: bool) -> SyntheticExamples:
        length = max(self.config.test_length, self.config.train_length + 1) if test else self.config.train_length
        bits = rng.integers(0, 2, (rows, length))
        mask = np.arange(length) >= (self.config.train_length if test else 0)
        return SyntheticExamples(bits, bits.cumsum(axis=1) % 2, np.broadcast_to(mask, bits.shape))
