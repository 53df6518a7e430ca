"""Lab: what padding does."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.batches import Ragged
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Lines
from elman.inspection.attention import attention_mass
from elman.inspection.labs.lab import Expected, Lab, Progress, Result
from elman.inspection.labs.reviews import Reviewer, reviews, train_reviewer
from elman.ops import taps

SENTENCES = 400
PADS = (0, 1, 2, 4, 8, 16)
PAD = 0
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "lstm, last state": {},
    "two-way attention, mean": {
        "pattern": ["two-way-attention", "feedforward"],
        "num_layers": 4,
        "positions": "learned",
        "residual": True,
        "norm": "pre",
        "pooling": "mean",
    },
}


class Way(NamedTuple):
    """Where padding stands, and whether the model is told the lengths."""

    left: bool
    told: bool


TOLD = "at the right, lengths told"
WAYS = {
    TOLD: Way(left=False, told=True),
    "at the right, not told": Way(left=False, told=False),
    "at the left, not told": Way(left=True, told=False),
}


def experiment(seed: int, progress: Progress) -> Result:
    texts = reviews(SENTENCES, seed + 1000)
    panels, changes = [], []
    measured: dict[str, float] = {}
    for name, settings in ARCHITECTURES.items():
        reviewer = train_reviewer(seed, progress, **settings)
        rows = [reviewer.tokenizer.encode(text.text).tolist() for text in texts]
        truth = torch.tensor([reviewer.labels.numbers[text.labels[0]] for text in texts])
        scores = {way: [verdicts(reviewer, rows, pads, WAYS[way]) for pads in PADS] for way in WAYS}
        right = {
            way: np.array([float((one.argmax(1) == truth).double().mean()) for one in scores[way]]) for way in WAYS
        }
        changes += [float((one - scores[TOLD][0]).abs().max()) for one in scores[TOLD]]
        measured |= {f"{name}: right, {PADS[-1]} pads {way}": float(shares[-1]) for way, shares in right.items()}
        panels.append(_curves(right, "verdicts right", name))
    measured["largest change of any score, lengths told"] = max(changes)
    shares = {way: np.array([on_padding(reviewer, rows, pads, WAYS[way]) for pads in PADS]) for way in WAYS}
    measured |= {f"attention on {PADS[-1]} pads {way}": float(shares[way][-1]) for way in WAYS}
    attention_maps = Figure("What attention spends on padding", [_curves(shares, "share of attention", "")])
    return Result([Figure("Verdicts right by padding", panels), attention_maps], measured)


def _curves(by_way: dict[str, np.ndarray], quantity: str, title: str) -> Lines:
    lines = {way: (np.array(PADS), values) for way, values in by_way.items()}
    return Lines(lines, "pads beside each text", quantity, limits=(-0.03, 1.03), title=title)


def padded(rows: Sequence[Sequence[int]], pads: int, way: Way) -> Ragged:
    """Texts of one length, with so much padding each."""
    words = torch.tensor(rows)
    padding = words.new_full((len(words), pads), PAD)
    values = torch.cat([padding, words] if way.left else [words, padding], dim=1)
    return Ragged(values, torch.full((len(words),), words.shape[1] if way.told else values.shape[1]))


def by_length(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Numbers of the rows of each length."""
    groups = defaultdict(list)
    for number, row in enumerate(rows):
        groups[len(row)].append(number)
    return list(groups.values())


def verdicts(reviewer: Reviewer, rows: Sequence[Sequence[int]], pads: int, way: Way) -> Tensor:
    """Scores of all labels for each text."""
    scores = torch.zeros(len(rows), len(reviewer.labels))
    with inference_mode(reviewer.model):
        for numbers in by_length(rows):
            scores[numbers] = reviewer.model.logits(padded([rows[number] for number in numbers], pads, way))
    return scores


def on_padding(reviewer: Reviewer, rows: Sequence[Sequence[int]], pads: int, way: Way) -> float:
    """The mean share of attention that real words spend on padding, over all layers and heads."""
    shares = []
    for numbers in by_length(rows):
        text = padded([rows[number] for number in numbers], pads, way)
        places = torch.arange(text.values.shape[1])
        real = places >= pads if way.left else places < len(places) - pads
        with inference_mode(reviewer.model), taps.record("*-attention.weights") as seen:
            reviewer.model.logits(text)
        for site in seen:
            shares += [float(attention_mass(row.transpose(0, 1)[:, real], ~real).mean()) for row in seen[site]]
    return float(np.mean(shares))


LAB = Lab(
    "padding",
    "Padding",
    "Texts of one batch differ in length, so short ones are filled up. When does that change the answers?",
    "Never, if it stands at the right and the model is told the lengths: not one score changes. If it is not told, "
    "padding is read as words. An LSTM goes on after the verdict and forgets it; attention spends half of its weight "
    "on pads, and its verdicts are little better than guesses. Padding at the left, not told, moves all positions, "
    "which ruins this attention; an LSTM mostly forgets it with the first words and stays right, but not in every "
    "seed: in one of five it guesses too.",
    {
        "lstm, last state: right, 16 pads at the right, lengths told": Expected(0.99, 1.0),
        "lstm, last state: right, 16 pads at the right, not told": Expected(0.1, 0.85),
        "lstm, last state: right, 16 pads at the left, not told": Expected(0.4, 1.0),
        "two-way attention, mean: right, 16 pads at the right, lengths told": Expected(0.85, 1.0),
        "two-way attention, mean: right, 16 pads at the right, not told": Expected(0.4, 0.9),
        "two-way attention, mean: right, 16 pads at the left, not told": Expected(0.4, 0.75),
        "largest change of any score, lengths told": Expected(0.0, 1e-4),
        "attention on 16 pads at the right, lengths told": Expected(0.0, 0.0),
        "attention on 16 pads at the right, not told": Expected(0.35, 0.75),
        "attention on 16 pads at the left, not told": Expected(0.35, 0.8),
    },
    experiment,
    "Pads are a word that training never saw. Models that are trained with pads unmasked learn to live with them, more "
    "slowly, and then depend on how many there are: the same text gets another score in another batch.",
)
