"""The encoder-decoder bottleneck: sequence reversal with a fixed-size context vector, and with attention.

Models learn to reverse letters with a curriculum from short to longer sources, and are tested up to five times beyond
the lengths of training. A fixed vector loses letters from a certain length on; attention looks each letter up.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.batches import Examples, collate
from elman.corpus.pair_corpus import Reversal, noisy_reversals, random_words
from elman.errors import UnknownName
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import SHARE, Lines
from elman.files import atomic_write
from elman.inspection.attention import alignment, attention_hits, map_figure
from elman.inspection.small_models import Progress, adam, fit, silent
from elman.models import EncoderDecoder, EncoderDecoderConfig
from elman.models.stack import count_parameters
from elman.training import TrainingConfig
from elman.training.synthetic_tasks import GeneratedBatches

EOS = 0
NUMBERS = {letter: number for number, letter in enumerate(ascii_lowercase, start=1)}
SHORTEST, STARTING = 5, 8  # letters: the shortest source, and the longest at the start of the curriculum
CURRICULUM = 0.5  # share of the training until sources have their full length
LENGTHS = (5, 10, 20, 40, 60, 100, 200)
SHOWN = 20  # letters of the source in the alignment map
MEASURES = {"accuracy": "Letter accuracy under teacher forcing", "exact": "Exact match of whole sources"}


class Architecture(NamedTuple):
    """An encoder-decoder of the comparison: its width, and whether it has attention and a bidirectional encoder."""

    name: str
    width: int
    attention: bool
    two_way: bool = False

    def build(self, seed: int, symbols: int = len(NUMBERS) + 1) -> EncoderDecoder:
        encoder: Any = {"bidirectional": {"layer": "gru"}} if self.two_way else "gru"
        decoder: dict[str, Any] = {"pattern": ["gru"], "hidden_size": self.width}
        decoder |= {} if self.attention else {"attention": None}
        settings = {"encoder": {"pattern": [encoder], "hidden_size": self.width}, "decoder": decoder}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return EncoderDecoder(EncoderDecoderConfig.make(settings), symbols, symbols, EOS)


class Size(NamedTuple):
    """The budget of an experiment."""

    architectures: tuple[Architecture, ...]
    training: TrainingConfig
    trained: int  # letters of the longest training source
    rows: int  # test sources of each length


def _training(steps: int, rate: float, batch: int) -> TrainingConfig:
    return adam(rate, max_steps=steps, batch_size=batch, max_epochs=1, log_every=10)


SIZES = {
    "quick": Size(
        (Architecture("one vector, 64", 64, False), Architecture("attention, two-way, 64", 64, True, True)),
        _training(steps=320, rate=8e-3, batch=32),
        trained=20,
        rows=50,
    ),
    "full": Size(
        (
            Architecture("one vector, 32", 32, False),
            Architecture("one vector, 128", 128, False),
            Architecture("attention, one-way, 128", 128, True),
            Architecture("attention, two-way, 128", 128, True, True),
        ),
        _training(steps=800, rate=4e-3, batch=64),
        trained=40,
        rows=200,
    ),
}


class Outcome(NamedTuple):
    """Results of one architecture; lists have an entry for each test length."""

    model: EncoderDecoder
    name: str
    parameters: int
    seconds: float
    loss: float  # nats per letter at the end of training
    accuracy: list[float]  # of letters under teacher forcing
    exact: list[float]  # exact match: share of sources reversed without a mistake, the end included
    alignment: list[float] | None  # share of letters with the largest attention weight on the letter to be written


class Bottleneck(NamedTuple):
    size: str
    seed: int
    trained: tuple[int, int]  # letters of the shortest and the longest training source
    lengths: tuple[int, ...]
    outcomes: list[Outcome]

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        outcomes = [{name: value for name, value in one._asdict().items() if name != "model"} for one in self.outcomes]
        return {**self._asdict(), "outcomes": outcomes}


def check_size(size: str) -> None:
    if size not in SIZES:
        raise UnknownName("size", size, SIZES)


def run_bottleneck(
    size: str = "quick", seed: int = 1, lengths: Sequence[int] = LENGTHS, progress: Progress = silent
) -> Bottleneck:
    check_size(size)
    plan = SIZES[size]
    outcomes = [_outcome(one, plan, seed, lengths, progress) for one in plan.architectures]
    return Bottleneck(size, seed, (SHORTEST, plan.trained), tuple(lengths), outcomes)


def curriculum_batches(steps: int, rows: int, longest: int, seed: int) -> GeneratedBatches:
    """New random letters at every step, of one length each: short ones first (Bengio et al., 2009)."""

    def make(index: int) -> Examples:
        rng = np.random.default_rng([seed, 0, index])
        grown = min(1.0, index / (CURRICULUM * steps))
        limit = STARTING + round(grown * (longest - STARTING))  # of the length at this step
        size, own_seed = int(rng.integers(SHORTEST, limit + 1)), int(rng.integers(2**31))
        return reversal_batch(sources(size, rows, own_seed))

    return GeneratedBatches(steps, make)


def sources(length: int, rows: int, seed: int) -> list[Reversal]:
    """Random letters of one length."""
    return list(noisy_reversals(random_words(rows, ascii_lowercase, length, length, seed), noise=0))


def reversal_batch(pairs: Sequence[Reversal], numbers: Mapping[str, int] = NUMBERS) -> Examples:
    """As token ids; both sides end with the end-of-sequence token."""

    def ids(text: str) -> np.ndarray:
        return np.array([*(numbers[letter] for letter in text), EOS])

    return collate([{"source": ids(pair.source), "target": ids(pair.target)} for pair in pairs], unit="target")


def _outcome(architecture: Architecture, plan: Size, seed: int, lengths: Sequence[int], progress: Progress) -> Outcome:
    began, training = time.perf_counter(), plan.training
    model = architecture.build(seed)
    batches = curriculum_batches(training.max_steps, training.batch_size, plan.trained, seed)
    losses = fit(architecture.name, model, batches, training, progress)
    scores = [evaluate(model, sources(length, plan.rows, 2**31 + seed + length)) for length in lengths]
    return Outcome(
        model,
        architecture.name,
        count_parameters(model),
        round(time.perf_counter() - began, 1),
        losses[-1][1] if losses else float("nan"),
        [score.accuracy for score in scores],
        [score.exact for score in scores],
        [score.alignment for score in scores if score.alignment is not None] or None,
    )


class Scores(NamedTuple):
    accuracy: float
    exact: float
    alignment: float | None


def evaluate(model: EncoderDecoder, pairs: Sequence[Reversal], numbers: Mapping[str, int] = NUMBERS) -> Scores:
    """Under teacher forcing; exact match equals that of greedy decoding, which differs only after a mistake."""
    batch = reversal_batch(pairs, numbers)
    source, target = batch.ragged("source"), batch.ragged("target")
    with inference_mode(model):
        right = model(source, target).argmax(-1) == target.values
    letters = target.mask() & (target.values != EOS)
    aligned = None
    if model.decoder.attention is not None:
        aligned = attention_hits(alignment(model, source, target), [pair.places for pair in pairs])
    exact = (right | ~target.mask()).all(1)
    return Scores(right[letters].double().mean().item(), exact.double().mean().item(), aligned)


def save_bottleneck(found: Bottleneck, folder: Path, command: str = "") -> list[Path]:
    """Saves the figures, and last of all `bottleneck.json`, which marks the folder as complete."""
    figures = {"bottleneck": bottleneck_figure(found), "attention": alignment_figure(found)}
    paths = [
        *(path for name, figure in figures.items() for path in figure.with_command(command).save_images(folder / name)),
        folder / "bottleneck.json",
    ]
    atomic_write(paths[-1], json.dumps(found.plain(), indent=2).encode())
    return paths


def bottleneck_figure(found: Bottleneck) -> Figure:
    """Letter accuracy and exact match over the length of the source."""
    panels = [
        Lines(
            {one.name: (found.lengths, getattr(one, measure)) for one in found.outcomes},
            "source length (letters)",
            "accuracy",
            "x",
            limits=SHARE,
            x_span=found.trained,
            x_span_label="training lengths",
            title=title,
        )
        for measure, title in MEASURES.items()
    ]
    return Figure("Sequence reversal: fixed context vector against attention", panels)


def alignment_figure(found: Bottleneck) -> Figure:
    """The alignment map of the last architecture with attention."""
    shown = [outcome for outcome in found.outcomes if outcome.alignment is not None][-1]
    pairs = sources(SHOWN, 1, seed=found.seed)
    batch = reversal_batch(pairs)
    weights = alignment(shown.model, batch.ragged("source"), batch.ragged("target"))
    return reversal_map(weights[0], pairs[0], f"Alignment: {shown.name}")


def reversal_map(weights: Tensor, pair: Reversal, title: str) -> Figure:
    """The alignment of one pair, with the end-of-sequence tokens."""
    return map_figure(weights, [*pair.source, "<eos>"], [*pair.target, "<eos>"], title)
