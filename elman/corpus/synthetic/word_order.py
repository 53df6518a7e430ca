"""A word order probe: pairs of sentences with the same words and opposite meaning: good, not bad; bad, not good.

A bag-of-words model gives both sentences of a pair the same label, so its accuracy is exactly one half.
"""

from itertools import product

import numpy as np

from elman.corpus.labelled_corpus import LabelledText
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
SPLITS = {"train": (2, 3, 4), "valid": (1,), "test": (0,)}  # fifths of all pairs


def word_order(split: str = "test", pairs: int = 200, seed: int = 0) -> list[LabelledText]:
    """`pairs` pairs of adjacent sentences, labelled `positive` and `negative`."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    every = list(product(THINGS, FRAMES, GOOD, BAD))
    order = np.random.default_rng(seed).permutation(len(every))
    own = [every[number] for place, number in enumerate(order) if place % 5 in SPLITS[split]]
    if not 0 < pairs <= len(own):
        raise ConfigError(f"word order: the {split} split has {len(own)} pairs, but {pairs} were requested")
    sentences: list[LabelledText] = []
    for thing, frame, good, bad in own[:pairs]:
        for said, denied, label in ((good, bad, "positive"), (bad, good, "negative")):
            text = frame.format(thing=thing, said=said, denied=denied)
            sentences.append(LabelledText(text, "word order", len(sentences) + 1, labels=(label,)))
    return sentences
