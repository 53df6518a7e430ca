"""The synthetic tasks.

- Adding problem (Hochreiter & Schmidhuber, 1997): sum of two numbers over a long distance.
- Copy memory (Hochreiter & Schmidhuber, 1997, as posed by Arjovsky et al., 2016): repeat symbols after a delay.
- Parity of the bits so far: one bit of state, flipped by the input.
- Multi-query associative recall (Arora et al., 2023): look up the value of a key.
- Selective copying (Gu & Dao, 2023): remember symbols at random positions among noise.
"""

import math
from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from elman.corpus.synthetic_tasks.base import (
    TASKS,
    Claim,
    SyntheticExamples,
    SyntheticTask,
    asked_at_the_end,
    claimed,
    distinct,
)

BLANK = 0  # symbol id of copy memory
NOISE, NOW, FIRST = 0, 1, 2  # symbol ids of selective copying: noise, query, first content symbol


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
    claims: ClassVar = [*claimed("fails", "rnn"), *claimed("solves", "gru", "lstm", "convolution")]
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
        sums = np.take_along_axis(numbers, places, axis=1).sum(axis=1, keepdims=True)
        return asked_at_the_end(np.stack([numbers, marks], axis=2), sums)


@TASKS.register("copy-memory")
class CopyMemory(SyntheticTask):
    """Ten symbols, many blanks, a signal; the target is the ten symbols after the signal, and blanks before.

    Published: a memoryless model has 10 · log 8 / (blanks + 20) nats. Simple recurrent networks and, from a few hundred
    blanks on, LSTMs stay there; unitary matrices (Arjovsky et al., 2016), dilated convolutions (Bai et al., 2018) and
    attention reach zero.
    """

    measure = "nats"
    claims: ClassVar = [
        *claimed("fails", "rnn"),
        *claimed("solves", "convolution", "attention"),
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
        *claimed("solves", "rnn", "lstm"),
        *claimed("fails", "attention", "convolution", "mingru", "mamba"),
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


@TASKS.register("recall")
class Recall(SyntheticTask):
    """Pairs of key and value, then every key again in random order; the target at each is its value.

    Published: attention recalls any number of pairs at any width; models with a fixed-size state have limited capacity,
    and input-independent convolutions are worse still (Arora et al., 2023, "Zoology"; Jelassi et al., 2024).
    """

    solved = 0.95
    claims: ClassVar = [
        Claim("attention", "solves"),
        *(Claim("attention", "beats", other) for other in ("rnn", "lstm", "s4d", "convolution")),
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
        return asked_at_the_end(inputs, np.take_along_axis(values, order, axis=1))


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
        return asked_at_the_end(inputs, kept)
