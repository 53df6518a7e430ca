"""Noisy reversal: reverse a text and remove the noise; the correct alignment is known."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from elman.config import Config
from elman.corpus.config import DataConfig, DataPaths
from elman.corpus.document import SPLITS, PairDocument, Repairs
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import locate
from elman.corpus.text import line_documents

NOISE = "0123456789"


class Reversal(NamedTuple):
    source: str  # the text with noise characters
    target: str  # the text reversed
    places: tuple[int, ...]  # source position of each target character


def noisy_reversals(texts: Iterable[str], noise: float = 0.25, seed: int = 0) -> Iterator[Reversal]:
    """One pair per text; a random digit precedes each letter, and the end, with probability `noise`."""
    rng = np.random.default_rng(seed)
    for text in texts:
        before = rng.random(len(text) + 1) < noise
        signs = rng.integers(len(NOISE), size=len(text) + 1)
        pieces = [NOISE[sign] if noisy else "" for noisy, sign in zip(before, signs, strict=True)]
        source = "".join(piece + letter for piece, letter in zip(pieces, [*text, ""], strict=True))
        places = np.arange(len(text)) + before[:-1].cumsum()
        yield Reversal(source, text[::-1], tuple(places[::-1].tolist()))


def random_words(
    count: int, letters: str = "abcdefgh", shortest: int = 2, longest: int = 6, seed: int = 0
) -> list[str]:
    """Random words to reverse."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(shortest, longest + 1, size=count)
    return ["".join(rng.choice(list(letters), size=size)) for size in sizes]


class ReversalConfig(Config):
    """Settings of the noisy reversal task."""

    type: Literal["reversal"] = "reversal"
    train: DataPaths = None
    """Training texts, one per line; null: random words."""
    valid: DataPaths = None
    """Validation texts."""
    test: DataPaths = None
    """Test texts."""
    noise: float = Field(0.25, ge=0, le=1)
    """Probability of a digit before each letter, and at the end, which must be removed."""
    words: int = Field(4000, ge=10)
    """Number of random training words, if no texts are given; a tenth of it for each of valid and test."""
    shortest: int = Field(2, ge=1)
    """Minimum length of random words."""
    longest: int = Field(10, ge=1)
    """Maximum length of random words."""
    seed: int = Field(0, ge=0)
    """Random seed of words and noise."""


class ReversalLanguage:
    """Pairs of a noisy text and its reversal, with their alignment."""

    def __init__(self, config: ReversalConfig):
        self.config = config
        self.sources = [source for split in SPLITS for source in locate(getattr(config, split), "text", split)]

    @classmethod
    def make(cls, settings: Mapping[str, Any]) -> "ReversalLanguage":
        return cls(ReversalConfig.make(settings, where="data.language"))

    def split(self, name: str) -> Iterator[PairDocument]:
        seed = self.config.seed + [*SPLITS].index(name)
        for number, found in enumerate(noisy_reversals(self._texts(name, seed), self.config.noise, seed), start=1):
            size = len(found.source) + 1
            yield PairDocument(found.source, name, number, size, target=found.target, places=found.places)

    def _texts(self, name: str, seed: int) -> Iterator[str]:
        config, given = self.config, getattr(self.config, name)
        if given:
            for source in locate(given, "text", name):
                documents = line_documents(SourceReader(source, DataConfig(), Repairs()))
                yield from (document.text for document in documents if document.text.strip())
        elif not config.train:
            count = config.words if name == "train" else max(1, config.words // 10)
            yield from random_words(count, shortest=config.shortest, longest=config.longest, seed=seed)
