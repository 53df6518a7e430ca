"""Noisy reversal: write a text backwards and leave out the noise; where each letter must be looked for is known."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

NOISE = "0123456789"


class Reversal(NamedTuple):
    source: str  # the text, with noise among its letters
    target: str  # the text backwards
    places: tuple[int, ...]  # for each letter of the target, its place in the source


def noisy_reversals(texts: Iterable[str], noise: float = 0.25, seed: int = 0) -> Iterator[Reversal]:
    """One for each text; before each letter, and at the end, comes a sign of noise with this probability."""
    dice = np.random.default_rng(seed)
    for text in texts:
        before = dice.random(len(text) + 1) < noise
        signs = dice.integers(len(NOISE), size=len(text) + 1)
        pieces = [NOISE[sign] if noisy else "" for noisy, sign in zip(before, signs, strict=True)]
        source = "".join(piece + letter for piece, letter in zip(pieces, [*text, ""], strict=True))
        places = np.arange(len(text)) + before[:-1].cumsum()
        yield Reversal(source, text[::-1], tuple(places[::-1].tolist()))


def random_words(
    count: int, letters: str = "abcdefgh", shortest: int = 2, longest: int = 6, seed: int = 0
) -> list[str]:
    """Words to reverse where none are given."""
    dice = np.random.default_rng(seed)
    sizes = dice.integers(shortest, longest + 1, size=count)
    return ["".join(dice.choice(list(letters), size=size)) for size in sizes]
