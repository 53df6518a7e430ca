"""Synthetic reviews with negation, and a small sentiment classifier, for labs on states and gates."""

from typing import Any

import numpy as np

from elman.corpus.labelled_corpus import LabelledText
from elman.inspection.small_models import Progress, TextClassifier, fit_classifier

THINGS = ("movie", "film", "story", "plot", "cast", "ending", "music", "book")
ADVERBS = ("very", "really", "so", "quite", "rather")
GOOD = ("great", "good", "funny", "clever", "moving", "fresh")
BAD = ("awful", "bad", "dull", "clumsy", "shallow", "stale")
SENTENCES, UNITS = 3000, 16


def reviews(count: int, seed: int) -> list[LabelledText]:
    """A subject, "was", optionally "not", up to two adverbs and an adjective."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        good, negated = bool(rng.integers(2)), bool(rng.integers(2))
        words = ["the", str(rng.choice(THINGS)), "was", *(["not"] if negated else [])]
        words += [str(word) for word in rng.choice(ADVERBS, int(rng.integers(3)))]
        words.append(str(rng.choice(GOOD if good else BAD)))
        label = "positive" if good != negated else "negative"
        found.append(LabelledText(" ".join(words), "reviews", number + 1, labels=(label,)))
    return found


def train_reviewer(seed: int, progress: Progress, **settings: Any) -> TextClassifier:
    """An LSTM with 16 units; every_token=True trains the label at each word."""
    default = {"pattern": [{"lstm": {"forget_bias": 0.0}}], "hidden_size": UNITS}  # the bias of PyTorch
    return fit_classifier("reviews", reviews(SENTENCES, seed), {**default, **settings}, seed, progress)
