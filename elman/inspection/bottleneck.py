"""The encoder-decoder bottleneck: sequence reversal with a fixed-size context vector, and with attention.

Models learn to reverse letters with a curriculum from short to longer sources, and are tested up to five times beyond
the lengths of training. A fixed vector loses letters from a certain length on; attention looks each letter up.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import torch

from elman.batches import Examples, Ragged
from elman.corpus.pair_corpus import Reversal, noisy_reversals, random_words
from elman.errors import UnknownName
from elman.evaluation.inference_mode import inference_mode
from elman.inspection.attention_map import alignment, attention_hits
from elman.models import EncoderDecoder, EncoderDecoderConfig
from elman.training import Trainer, TrainingConfig

EOS = 0
NUMBERS = {letter: number for number, letter in enumerate(ascii_lowercase, start=1)}
SHORTEST, STARTING = 5, 8  # letters: the shortest source, and the longest at the start of the curriculum
CURRICULUM = 0.5  # share of the training until sources have their full length
LENGTHS = (5, 10, 20, 40, 60, 100, 200)


class Architecture(NamedTuple):
    """An encoder-decoder of the comparison: its width, and whether it has attention and a bidirectional encoder."""

    name: str
    width: int
    attention: bool
    two_way: bool = False

    def build(self, seed: int) -> EncoderDecoder:
        encoder: Any = {"bidirectional": {"layer": "gru"}} if self.two_way else "gru"
        decoder: dict[str, Any] = {"pattern": ["gru"], "hidden_size": self.width}
        decoder |= {} if self.attention else {"attention": None}
        settings = {"encoder": {"pattern": [encoder], "hidden_size": self.width}, "decoder": decoder}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return EncoderDecoder(EncoderDecoderConfig.make(settings), len(NUMBERS) + 1, len(NUMBERS) + 1, EOS)


class Size(NamedTuple):
    """The budget of an experiment."""

    architectures: tuple[Architecture, ...]
    training: TrainingConfig
    trained: int  # letters of the longest training source
    rows: int  # test sources of each length


def _training(steps: int, rate: float, batch: int) -> TrainingConfig:
    common: dict[str, Any] = {"schedule": "cosine", "optimizer": "adam", "warmup_steps": 20, "log_every": 10}
    return TrainingConfig(max_steps=steps, learning_rate=rate, batch_size=batch, max_epochs=1, **common)


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


@dataclass(frozen=True)
class Outcome:
    """Results of one architecture; lists have an entry for each test length."""

    model: EncoderDecoder
    name: str
    parameters: int
    seconds: float
    loss: float
    """Nats per letter at the end of training."""
    accuracy: list[float]
    """Accuracy of letters under teacher forcing."""
    exact: list[float]
    """Exact match: share of sources reversed without a mistake, the end included."""
    alignment: list[float] | None
    """Alignment accuracy: share of letters with the largest attention weight on the letter to be written."""

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "model"}


@dataclass(frozen=True)
class Bottleneck:
    size: str
    seed: int
    trained: tuple[int, int]
    """Letters of the shortest and the longest training source."""
    lengths: tuple[int, ...]
    outcomes: list[Outcome]

    def plain(self) -> dict[str, Any]:
        return {**vars(self), "outcomes": [outcome.plain() for outcome in self.outcomes]}


def check_size(size: str) -> None:
    if size not in SIZES:
        raise UnknownName("size", size, SIZES)


def run_bottleneck(
    size: str = "quick",
    seed: int = 1,
    lengths: Sequence[int] = LENGTHS,
    progress: Callable[[str, int, int, float], None] = lambda name, step, steps, loss: None,
) -> Bottleneck:
    """Trains and tests each architecture; `progress` gets its name, the step, the number of steps, and the loss."""
    check_size(size)
    plan = SIZES[size]
    outcomes = [_outcome(one, plan, seed, lengths, progress) for one in plan.architectures]
    return Bottleneck(size, seed, (SHORTEST, plan.trained), tuple(lengths), outcomes)


class CurriculumBatches:
    """New random letters at every step, of one length each: short ones first (Bengio et al., 2009)."""

    def __init__(self, steps: int, rows: int, longest: int, seed: int):
        self.steps, self.rows, self.longest, self.seed = steps, rows, longest, seed

    def length_of(self, number: int) -> int:
        return self.steps

    def epoch(self, number: int, start: int = 0) -> Iterator[Examples]:
        for index in range(start, self.steps):
            rng = np.random.default_rng([self.seed, number, index])
            size, seed = int(rng.integers(SHORTEST, self.limit(index) + 1)), int(rng.integers(2**31))
            yield reversal_batch(sources(size, self.rows, seed))

    def limit(self, index: int) -> int:
        """The longest source at a step."""
        grown = min(1.0, index / (CURRICULUM * self.steps))
        return STARTING + round(grown * (self.longest - STARTING))


def sources(length: int, rows: int, seed: int) -> list[Reversal]:
    """Random letters of one length."""
    return list(noisy_reversals(random_words(rows, ascii_lowercase, length, length, seed), noise=0))


def reversal_batch(pairs: Sequence[Reversal], numbers: Mapping[str, int] = NUMBERS) -> Examples:
    """As token ids; both sides end with the end-of-sequence token."""
    sides = {"source": [pair.source for pair in pairs], "target": [pair.target for pair in pairs]}
    fields: dict[str, Any] = {}
    for name, texts in sides.items():
        lengths = torch.tensor([len(text) + 1 for text in texts])
        values = torch.full((len(texts), int(lengths.max())), EOS)
        for row, text in enumerate(texts):
            values[row, : len(text)] = torch.tensor([numbers[letter] for letter in text])
        fields[name] = Ragged(values, lengths)
    return Examples(fields, unit="target")


def _outcome(
    architecture: Architecture,
    plan: Size,
    seed: int,
    lengths: Sequence[int],
    progress: Callable[[str, int, int, float], None],
) -> Outcome:
    began, loss, training = time.perf_counter(), float("nan"), plan.training
    model = architecture.build(seed)
    batches = CurriculumBatches(training.max_steps, training.batch_size, plan.trained, seed)
    for report in Trainer(model, batches, training):
        if report.kind == "step":
            loss = report.values["loss"]
            progress(architecture.name, report.step, training.max_steps, loss)
    scores = [evaluate(model, sources(length, plan.rows, 2**31 + seed + length)) for length in lengths]
    aligned = [score.alignment for score in scores if score.alignment is not None]
    return Outcome(
        model,
        architecture.name,
        sum(parameter.numel() for parameter in model.parameters()),
        round(time.perf_counter() - began, 1),
        loss,
        [score.accuracy for score in scores],
        [score.exact for score in scores],
        aligned or None,
    )


class Scores(NamedTuple):
    accuracy: float
    exact: float
    alignment: float | None


def evaluate(model: EncoderDecoder, pairs: Sequence[Reversal]) -> Scores:
    """Under teacher forcing; exact match equals that of greedy decoding, which differs only after a mistake."""
    batch = reversal_batch(pairs)
    source, target = batch.ragged("source"), batch.ragged("target")
    with inference_mode(model):
        right = model(source, target).argmax(-1) == target.values
    letters = target.mask() & (target.values != EOS)
    aligned = None
    if model.decoder.attention is not None:
        aligned = attention_hits(alignment(model, source, target), [pair.places for pair in pairs])
    exact = (right | ~target.mask()).all(1)
    return Scores(right[letters].double().mean().item(), exact.double().mean().item(), aligned)
