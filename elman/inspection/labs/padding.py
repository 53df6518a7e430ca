"""Lab: padding and masks."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.batches import Ragged
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import SHARE, Lines
from elman.inspection.attention import attention_mass
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.small_models import TRANSFORMER, TextClassifier, reviews, train_reviewer
from elman.ops import taps

PADS = (0, 1, 2, 4, 8, 16)
PAD = 0
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "lstm, last state": {},
    "two-way attention, mean": {"pattern": ["two-way-attention", "feedforward"], **TRANSFORMER, "pooling": "mean"},
}


class Scheme(NamedTuple):
    """The side of the padding, and whether the model gets the true lengths."""

    left: bool
    masked: bool


MASKED = "right, masked"
SCHEMES = {
    MASKED: Scheme(left=False, masked=True),
    "right, unmasked": Scheme(left=False, masked=False),
    "left, unmasked": Scheme(left=True, masked=False),
}


def experiment(seed: int, progress: Progress, *, units: int = 16, sentences: int = 400) -> Result:
    texts = sorted(reviews(sentences, seed + 1000), key=lambda review: len(review.text.split()))
    panels, changes = [], []
    measured: dict[str, float] = {}
    for name, settings in ARCHITECTURES.items():
        reviewer = train_reviewer(seed, progress, **{"hidden_size": units, **settings})
        rows = [reviewer.tokenizer.encode(text.text).tolist() for text in texts]
        batches = [torch.tensor(list(group)) for _, group in groupby(rows, key=len)]
        truth = torch.tensor([reviewer.labels.numbers[text.labels[0]] for text in texts])
        scores = {way: [logits(reviewer, batches, pads, scheme) for pads in PADS] for way, scheme in SCHEMES.items()}
        right = {way: [float((one.argmax(1) == truth).double().mean()) for one in scores[way]] for way in SCHEMES}
        changes += [float((one - scores[MASKED][0]).abs().max()) for one in scores[MASKED]]
        measured |= {f"{name}: right, {PADS[-1]} pads {way}": shares[-1] for way, shares in right.items()}
        panels.append(by_padding(right, "accuracy", name))
    measured["largest change of a score, masked"] = max(changes)
    masses = {
        way: [mass_on_padding(reviewer, batches, pads, scheme) for pads in PADS] for way, scheme in SCHEMES.items()
    }
    measured |= {f"attention on {PADS[-1]} pads {way}": shares[-1] for way, shares in masses.items()}
    attention = Figure("Attention mass on padding", [by_padding(masses, "share of attention")])
    return Result([Figure("Accuracy by padding", panels), attention], measured)


def by_padding(shares: dict[str, list[float]], quantity: str, title: str = "") -> Lines:
    lines = {way: (PADS, values) for way, values in shares.items()}
    return Lines(lines, "padding tokens beside each text", quantity, limits=SHARE, title=title)


def padded(words: Tensor, pads: int, scheme: Scheme) -> Ragged:
    """Texts of one length with this much padding each."""
    padding = words.new_full((len(words), pads), PAD)
    values = torch.cat([padding, words] if scheme.left else [words, padding], dim=1)
    return Ragged(values, torch.full((len(words),), words.shape[1] if scheme.masked else values.shape[1]))


def logits(reviewer: TextClassifier, batches: Sequence[Tensor], pads: int, scheme: Scheme) -> Tensor:
    """Of all labels for each text; the texts of a batch have one length."""
    with inference_mode(reviewer.model):
        return torch.cat([reviewer.model.logits(padded(words, pads, scheme)) for words in batches])


def mass_on_padding(reviewer: TextClassifier, batches: Sequence[Tensor], pads: int, scheme: Scheme) -> float:
    """Mean attention mass of real tokens on padding, over all layers and heads."""
    shares = []
    for words in batches:
        text = padded(words, pads, scheme)
        places = torch.arange(text.values.shape[1])
        real = places >= pads if scheme.left else places < len(places) - pads
        with inference_mode(reviewer.model), taps.record("*-attention.weights") as seen:
            reviewer.model.logits(text)
        for site in seen:
            shares += [float(attention_mass(row.transpose(0, 1)[:, real], ~real).mean()) for row in seen[site]]
    return float(np.mean(shares))


LAB = Lab(
    "padding",
    "Padding",
    "Texts of a batch differ in length, so short ones are padded. When does padding change predictions?",
    "Never, if it is on the right and masked by the lengths: not one score changes. Unmasked padding is read as "
    "tokens. An LSTM updates its state after the last word and forgets the label; attention puts half of its "
    "weight on padding, and its accuracy falls to little above chance. Unmasked padding on the left shifts all "
    "positions, which breaks this attention model; an LSTM mostly forgets it with the first words and stays "
    "accurate, except for one of five seeds.",
    {
        "lstm, last state: right, 16 pads right, masked": (0.99, 1.0),
        "lstm, last state: right, 16 pads right, unmasked": (0.1, 0.85),
        "lstm, last state: right, 16 pads left, unmasked": (0.4, 1.0),
        "two-way attention, mean: right, 16 pads right, masked": (0.85, 1.0),
        "two-way attention, mean: right, 16 pads right, unmasked": (0.4, 0.9),
        "two-way attention, mean: right, 16 pads left, unmasked": (0.4, 0.75),
        "largest change of a score, masked": (0.0, 1e-4),
        "attention on 16 pads right, masked": (0.0, 0.0),
        "attention on 16 pads right, unmasked": (0.35, 0.75),
        "attention on 16 pads left, unmasked": (0.35, 0.8),
    },
    experiment,
    "The padding token is unseen in training. Models that are trained with unmasked padding adapt to it, more "
    "slowly, and then depend on the amount: the same text gets another score in another batch.",
    try_next={
        "units=64": "Is a wider model less sensitive to padding?",
    },
)
