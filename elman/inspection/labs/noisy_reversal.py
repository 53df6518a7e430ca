"""Lab: alignment accuracy of attention on noisy reversal, where the true alignment is known."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from elman.batches import Examples
from elman.corpus.pair_corpus import NOISE, Reversal, noisy_reversals, random_words
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
        measured[f"exact match, {name}"] = (right | ~target.mask()).all(1).double().mean().item()
        if name == "attention":
            weights = alignment(model, source, target)
            measured["alignment accuracy"] = attention_hits(weights, [pair.places for pair in test])
            shares = [_on_noise(row, pair) for row, pair in zip(weights, test, strict=True)]
            measured["attention mass on noise"] = float(np.mean(shares))
            shown = max(range(20), key=lambda row: len(test[row].source))
            names = [*test[shown].source, "<eos>"], [*test[shown].target, "<eos>"]
            figures.append(map_figure(weights[shown], *names, "Alignment (digits are noise)"))
    figures.append(Figure("Learning curves", [Lines(curves, "step", "loss (nats per letter)")]))
    return Result(figures, measured)


def _on_noise(weights: torch.Tensor, pair: Reversal) -> float:
    """Attention mass (of weights (time, heads, positions)) on noise, for one word."""
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
    "The task is to reverse words and leave out the digits between their letters. Does attention find the right "
    "letter?",
    "Yes: for almost every letter the largest weight is on the correct source position. The map is an "
    "anti-diagonal that skips the digits, which get almost no weight. A fixed context vector learns the task too, "
    "but much more slowly.",
    {
        "exact match, attention": Expected(0.95, 1.0),
        "alignment accuracy": Expected(0.9, 1.0),
        "attention mass on noise": Expected(0.0, 0.05),
        "exact match, one vector": Expected(0.0, 0.9),
    },
    experiment,
    "A large weight does not prove that the prediction depends on that letter: verify by leave-one-out ablation "
    "(elman inspect predictions).",
)
