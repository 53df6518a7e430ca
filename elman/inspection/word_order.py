"""Word order: classification of "good , not bad" against "bad , not good" by a recurrent model and a bag of words.

Both sentences have the same words, so a mean of word vectors gives both the same prediction. The models are trained on
sentences of this kind and on short phrases, and tested on new pairs and on two held-out phrases.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import Any, NamedTuple

import torch

from elman.corpus.labelled_corpus import LabelledText
from elman.corpus.synthetic.word_order import BAD, GOOD, word_order
from elman.inspection.small_models import Progress, fit_classifier, silent
from elman.models.stack import count_parameters

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "recurrent (gru)": {"pattern": ["gru"], "pooling": "last"},
    "mean of word vectors": {"pattern": [], "pooling": "mean", "head_size": 32},
}
PAIRS = {"train": 1000, "test": 200}
PHRASES = {"not good": "negative", "good , not great": "positive"}


class Result(NamedTuple):
    """Of one model."""

    name: str
    parameters: int
    accuracy: float  # of test sentences
    pairs: float  # share of test pairs with both sentences right
    phrases: dict[str, float]  # probability of the positive class


def word_order_table(seed: int = 1, progress: Progress = silent) -> list[Result]:
    """Trains and tests each model."""
    train, test = ([*word_order(split, pairs, seed)] for split, pairs in PAIRS.items())
    positive = torch.tensor([sentence.labels == ("positive",) for sentence in test])
    found = []
    for name, settings in ARCHITECTURES.items():
        classifier = fit_classifier(name, [*train, *phrases()], {"hidden_size": 32, **settings}, seed, progress)
        predicted = classifier.probabilities([sentence.text for sentence in test]) > 0.5
        right = (predicted == positive).double().view(-1, 2)  # sentences of a pair are neighbours
        probabilities = dict(zip(PHRASES, classifier.probabilities([*PHRASES]).tolist(), strict=True))
        scores = right.mean().item(), right.prod(1).mean().item()
        found.append(Result(name, count_parameters(classifier.model), *scores, probabilities))
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
