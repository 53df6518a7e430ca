"""Lab: noisy reversal, where the right place to look is known for every letter."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from elman.batches import Examples
from elman.corpus.reversal import NOISE, Reversal, noisy_reversals, random_words
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Lines
from elman.inspection.attention import attention_mass
from elman.inspection.attention_map import alignment, attention_hits, map_figure
from elman.inspection.bottleneck import EOS, reversal_batch
from elman.inspection.labs.lab import Expected, Lab, Progress, Result
from elman.models import EncoderDecoder, EncoderDecoderConfig
from elman.training import Trainer, TrainingConfig

LETTERS = "abcdefghijkl"
NUMBERS = {sign: number for number, sign in enumerate(LETTERS + NOISE, start=1)}
STEPS, WIDTH = 400, 64
TRAINING = TrainingConfig(
    max_steps=STEPS, batch_size=64, learning_rate=5e-3, max_epochs=1, schedule="cosine", optimizer="adam", log_every=10
)


class Words:
    """New words at every step."""

    def __init__(self, seed: int):
        self.seed = seed

    def length_of(self, number: int) -> int:
        return STEPS

    def epoch(self, number: int, start: int = 0) -> Iterator[Examples]:
        for index in range(start, STEPS):
            yield reversal_batch(words(64, self.seed * STEPS + index), NUMBERS)


def words(count: int, seed: int) -> list[Reversal]:
    return list(noisy_reversals(random_words(count, LETTERS, 3, 8, seed), noise=0.4, seed=seed))


def experiment(seed: int, progress: Progress) -> Result:
    test = words(400, 10**6 + seed)
    batch = reversal_batch(test, NUMBERS)
    source, target = batch.ragged("source"), batch.ragged("target")
    curves: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    measured: dict[str, float] = {}
    figures = []
    for name, settings in {"attention": {}, "one vector": {"attention": None}}.items():
        model, losses = _train(name, settings, seed, progress)
        steps, nats = zip(*losses, strict=True)
        curves[name] = (np.array(steps), np.array(nats))
        with inference_mode(model):
            right = model(source, target).argmax(-1) == target.values
        measured[f"words without a mistake, {name}"] = (right | ~target.mask()).all(1).double().mean().item()
        if name == "attention":
            weights = alignment(model, source, target)
            measured["largest weight on the right letter"] = attention_hits(weights, [pair.places for pair in test])
            shares = [_on_noise(row, pair) for row, pair in zip(weights, test, strict=True)]
            measured["attention on noise"] = float(np.mean(shares))
            shown = max(range(20), key=lambda row: len(test[row].source))
            names = [*test[shown].source, "<eos>"], [*test[shown].target, "<eos>"]
            figures.append(map_figure(weights[shown], *names, "Where it looks (digits are noise)"))
    figures.append(Figure("Learning", [Lines(curves, "step", "nats for each letter")]))
    return Result(figures, measured)


def _on_noise(weights: torch.Tensor, pair: Reversal) -> float:
    """Share of the weights (time, heads, places) on noise, at the letters of one word."""
    noisy = torch.tensor([sign in NOISE for sign in pair.source])
    return float(attention_mass(weights[: len(pair.target), :, : len(pair.source)].transpose(0, 1), noisy).mean())


def _train(
    name: str, decoder: dict[str, Any], seed: int, progress: Progress
) -> tuple[EncoderDecoder, list[tuple[int, float]]]:
    encoder = {"pattern": [{"bidirectional": {"layer": "gru"}}], "hidden_size": WIDTH}
    settings = {"encoder": encoder, "decoder": {"pattern": ["gru"], "hidden_size": WIDTH, **decoder}}
    losses = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        count = len(NUMBERS) + 1
        model = EncoderDecoder(EncoderDecoderConfig.make(settings), count, count, EOS)
        for report in Trainer(model, Words(seed), TRAINING):
            if report.kind == "step":
                losses.append((report.step, report.values["loss"]))
                progress(name, report.step, STEPS, report.values["loss"])
    return model, losses


LAB = Lab(
    "noisy-reversal",
    "Attention",
    "Words are to be written backwards, without the digits among their letters. Does attention look where it must?",
    "Yes: for almost every letter the largest weight is exactly on it. The map is an anti-diagonal that steps over the "
    "digits, which get almost nothing. One vector learns the same task, but much more slowly.",
    {
        "words without a mistake, attention": Expected(0.95, 1.0),
        "largest weight on the right letter": Expected(0.9, 1.0),
        "attention on noise": Expected(0.0, 0.05),
        "words without a mistake, one vector": Expected(0.0, 0.9),
    },
    experiment,
    "That a weight is large does not prove that the answer rests on it: leave the letter out and see "
    "(elman inspect predictions).",
)
