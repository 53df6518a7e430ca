"""Lab: what padding does."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.batches import Ragged
from elman.evaluation.still import still
from elman.inspection.attention import mass
from elman.inspection.figure import Figure
from elman.inspection.labs.lab import Expected, Lab, Listen, Result
from elman.inspection.labs.reviews import Reviewer, reviews, train_reviewer
from elman.inspection.panels import Lines
from elman.ops import taps

SENTENCES = 400
PADS = (0, 1, 2, 4, 8, 16)
PAD = 0
READERS: dict[str, dict[str, Any]] = {
    "lstm, last state": {},
    "two-way gru, mean": {"pattern": [{"bidirectional": {"layer": "gru"}}], "pooling": "mean"},
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


WAYS = {
    "at the right, lengths told": Way(left=False, told=True),
    "at the right, not told": Way(left=False, told=False),
    "at the left, not told": Way(left=True, told=False),
}


def experiment(seed: int, listen: Listen) -> Result:
    texts = reviews(SENTENCES, seed + 1000)
    panels, measured = [], {}
    changes = []
    for name, settings in READERS.items():
        reviewer = train_reviewer(seed, listen, **settings)
        rows = [reviewer.tokenizer.encode(text.text).tolist() for text in texts]
        truth = torch.tensor([reviewer.labels.numbers[text.labels[0]] for text in texts])
        curves = {}
        for way_name, way in WAYS.items():
            found = [verdicts(reviewer, rows, pads, way) for pads in PADS]
            shares = [(scores.argmax(1) == truth).double().mean().item() for scores in found]
            curves[way_name] = (np.array(PADS), np.array(shares))
            if way.told:
                changes.append(max(float((scores - found[0]).abs().max()) for scores in found))
            else:
                measured[f"{name}, {PADS[-1]} {way_name}"] = shares[-1]
        measured[f"{name}, no padding"] = float(curves["at the right, not told"][1][0])
        panels.append(Lines(curves, "padding after or before each text", "verdicts right", limits=(0, 1.03), title=name))
    measured["largest change of a score, lengths told"] = max(changes)
    lines = {way_name: (np.array(PADS), np.array([on_padding(reviewer, rows, pads, way) for pads in PADS])) for way_name, way in WAYS.items()}
    measured[f"attention on {PADS[-1]} padding, not told"] = float(lines["at the right, not told"][1][-1])
    measured[f"attention on {PADS[-1]} padding, told"] = float(lines["at the right, lengths told"][1][-1])
    share = Lines(lines, "padding after or before each text", "share of attention on padding", limits=(0, 1))
    return Result([Figure("Verdicts", panels), Figure("Where attention goes", [share])], measured)


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
    with still(reviewer.model):
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
        with still(reviewer.model), taps.record("*-attention.weights") as seen:
            reviewer.model.logits(text)
        for site in seen:
            shares += [float(mass(row.transpose(0, 1)[:, real], ~real).mean()) for row in seen[site]]
    return float(np.mean(shares))


LAB = Lab("padding","Padding","?","x",{},experiment)
