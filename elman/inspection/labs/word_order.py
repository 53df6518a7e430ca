"""Lab: word order, "good , not bad" against "bad , not good", classified by a recurrent model and a bag of words.

Both sentences have the same words, so a mean of word vectors gives both the same prediction. The models are trained on
sentences of this kind and on short phrases, and tested on new pairs and on two held-out phrases.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import Any, NamedTuple

import torch

from elman.corpus.labelled_corpus import LabelledText
from elman.corpus.synthetic.word_order import BAD, GOOD, word_order
from elman.figures.figure import Figure
from elman.figures.panels import Bars
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.small_models import fit_classifier, silent
from elman.models.stack import count_parameters

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "recurrent (gru)": {"pattern": ["gru"], "pooling": "last"},
    "mean of word vectors": {"pattern": [], "pooling": "mean", "head_size": 32},
}
PAIRS = {"train": 1000, "test": 200}
PHRASES = {"not good": "negative", "good , not great": "positive"}


class Accuracy(NamedTuple):
    name: str
    parameters: int
    accuracy: float  # of test sentences
    pairs: float  # share of test pairs with both sentences right
    phrases: dict[str, float]  # probability of the positive class


def word_order_table(seed: int = 1, progress: Progress = silent, units: int = 32, pairs: int = 1000) -> list[Accuracy]:
    train, test = [*word_order("train", pairs, seed)], [*word_order("test", PAIRS["test"], seed)]
    positive = torch.tensor([sentence.labels == ("positive",) for sentence in test])
    found = []
    for name, settings in ARCHITECTURES.items():
        classifier = fit_classifier(name, [*train, *phrases()], {"hidden_size": units, **settings}, seed, progress)
        predicted = classifier.probabilities([sentence.text for sentence in test]) > 0.5
        right = (predicted == positive).double().view(-1, 2)  # sentences of a pair are neighbours
        probabilities = dict(zip(PHRASES, classifier.probabilities([*PHRASES]).tolist(), strict=True))
        scores = right.mean().item(), right.prod(1).mean().item()
        found.append(Accuracy(name, count_parameters(classifier.model), *scores, probabilities))
    return found


def phrases() -> Iterator[LabelledText]:
    """All short ones but the held-out: a negated word, or two words of which one is negated."""
    opposite = {"positive": "negative", "negative": "positive"}
    for words, label in ((GOOD, "positive"), (BAD, "negative")):
        texts = {f"not {word}": opposite[label] for word in words}
        texts |= {f"{word} , not {negated}": label for word, negated in permutations(words, 2)}
        for number, (text, truth) in enumerate(texts.items(), start=1):
            if text not in PHRASES:
                yield LabelledText(text, "phrases", number, labels=(truth,))


def experiment(seed: int, progress: Progress, *, units: int = 32, pairs: int = 1000) -> Result:
    found = word_order_table(seed, progress, units, pairs)
    names = ["sentences", "pairs with both right"]
    bars = {one.name: [one.accuracy, one.pairs] for one in found}
    positive = {one.name: [*one.phrases.values()] for one in found}
    panels = [
        Bars(names, bars, "accuracy", (0, 1), title="200 test pairs of the same words in another order"),
        Bars(list(PHRASES), positive, "probability of positive", (0, 1), title="Two held-out phrases"),
    ]
    measured = {f"pairs right: {one.name}": one.pairs for one in found}
    measured |= {f"sentences right: {one.name}": one.accuracy for one in found}
    return Result([Figure("Word order", panels)], measured)


LAB = Lab(
    "word-order",
    "Bag of words",
    "Can a mean of word vectors distinguish “the film is good , not bad” from “the film is bad , not good”?",
    "It cannot: both sentences have the same words, so it gives both the same prediction and is right on exactly "
    "half of them. A recurrent model of the same size distinguishes them.",
    {
        "pairs right: recurrent (gru)": (0.9, 1.0),
        "pairs right: mean of word vectors": (0.0, 0.0),
        "sentences right: recurrent (gru)": (0.95, 1.0),
        "sentences right: mean of word vectors": (0.5, 0.5),
    },
    experiment,
    "On film reviews a mean of word vectors is accurate all the same: word order decides few of them.",
    try_next={
        "pairs=50": "How few pairs does the recurrent model need?",
        "units=4": "And how few units?",
    },
)
