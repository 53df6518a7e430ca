"""A probe of word order: pairs of sentences of the same words that say the opposite: good, not bad; bad, not good.

Whoever counts words alone gives both sentences of a pair the same answer, and so is right half of the time, exactly.
"""

from itertools import product

import numpy as np

from elman.corpus.labelled_corpus import Labelled
from elman.errors import ConfigError, UnknownName

GOOD = ("good", "great", "funny", "clever", "moving", "fresh", "tender", "brilliant")
BAD = ("bad", "awful", "dull", "clumsy", "shallow", "stale", "cold", "tedious")
THINGS = ("the film", "the story", "the plot", "this play", "her last book", "the whole cast")
FRAMES = (
    "{thing} is {said} , not {denied}",
    "{thing} is not {denied} but {said}",
    "{thing} is {said} and never {denied}",
    "not {denied} at all , {thing} is {said}",
    "far from {denied} , {thing} is {said}",
)
SPLITS = {"train": (2, 3, 4), "valid": (1,), "test": (0,)}  # fifths of all pairs: no pair is in two splits


def word_order(split: str = "test", pairs: int = 200, seed: int = 0) -> list[Labelled]:
    """Twice as many sentences, labelled `positive` and `negative` in turn: the two of a pair stand together."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    every = list(product(THINGS, FRAMES, GOOD, BAD))
    order = np.random.default_rng(seed).permutation(len(every))
    mine = [every[number] for place, number in enumerate(order) if place % 5 in SPLITS[split]]
    if not 0 < pairs <= len(mine):
        raise ConfigError(f"word order: the {split} split has {len(mine)} pairs, but {pairs} were asked for")
    sentences: list[Labelled] = []
    for thing, frame, good, bad in mine[:pairs]:
        for said, denied, label in ((good, bad, "positive"), (bad, good, "negative")):
            text = frame.format(thing=thing, said=said, denied=denied)
            sentences.append(Labelled(text, "word order", len(sentences) + 1, labels=(label,)))
    return sentences
