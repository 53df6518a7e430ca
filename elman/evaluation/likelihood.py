"""Likelihood of text: loss, perplexity, and bits per byte, which is comparable across vocabularies.

A model that predicts `<unk>` for a rare word pays little and says nothing about the word. So bits per byte add the cost
of spelling each unknown word: its bytes and an end mark, drawn uniformly from 257 symbols. They also add the cost of
capitals, spacing and Unicode forms that the tokenizer drops (`tokenizers.surface`): only then are they a probability.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.batches import Batch, TextCounts
from elman.errors import ElmanError, nan_error
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.evaluation.significance import MIN_UNITS, Interval, bootstrap_interval
from elman.jsonable import Result
from elman.models import LIKELIHOOD_OF, frame_of, prediction_of
from elman.ops.state import take_rows
from elman.tokenizers.surface import SPELLING
from elman.training.reports import perplexity


class Span(NamedTuple):
    """The loss at positions start to end (from 1, inclusive): shows how much longer context helps."""

    start: int
    end: int
    loss: float
    tokens: int


@dataclass(frozen=True)
class Likelihood(Result):
    loss: float
    """Nats per token, end-of-document tokens included."""
    loss_interval: Interval | None
    """95 % bootstrap interval, resampling documents, or blocks of text if there are fewer than ten documents; none of
    fewer than ten blocks."""
    perplexity: float
    """exp(loss): comparable only between models with the same tokenizer."""
    perplexity_interval: Interval | None
    bits_per_byte: float
    """Bits per byte of text, including all that the tokens lack: comparable between all models of the same text."""
    tokens: int
    bytes: int
    """Of the text as read: the scores of two models are of the same text only if these are equal."""
    nats: float
    """Total of the text, including unknown words, capitals and spacing that the tokens lack."""
    bits_per_byte_unspelled: float
    """Bits per byte of the tokens alone."""
    bits_per_character: float
    """Bits per character; the end of a document counts as one."""
    word_perplexity: float
    """exp(total nats / number of whitespace-separated words); what tokens lack and document ends are in the total."""
    unknowns: int
    unknown_rate: float
    """Share of unknown tokens."""
    context: str
    """How much context the model saw."""
    by_position: list[Span]
    """The loss by position in the document, or in the stream if the state is carried."""
    kind: str = "likelihood"
    """Or pseudo-likelihood, of a bidirectional model: comparable only between such models."""
    language: dict[str, Any] | None = None
    """Comparison with the true distribution of a synthetic language."""


def evaluate(model: Any, batches: Any, counts: TextCounts, context: str, *, quick: bool = False) -> Likelihood:
    """Likelihood over one epoch of batches that cover a text with these `counts`.

    `quick` uses the model's cheaper approximate losses for validation during training, if it has them.
    """
    kind = LIKELIHOOD_OF[prediction_of(model)]
    sums = _Sums(alone=kind == "pseudo-likelihood")
    if frame_of(model):  # the ends of documents are given
        counts = replace(counts, tokens=counts.tokens - counts.documents, documents=0)
    for batch, losses, predicted in batch_losses(model, batches, quick):
        sums.add(losses, predicted, batch.fresh)
    return _score(sums, counts, context, kind)


def batch_losses(model: Any, batches: Any, quick: bool = False) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Every batch of an epoch, with the nats of its targets (rows, time), and which of these are predicted: all but
    padding and ends that the model is given. Nats are zero elsewhere; states are carried over."""
    frame = frame_of(model)
    losses_of = getattr(model, "quick_losses", model.losses) if quick else model.losses
    device = device_of(model)
    state: Any = None
    for batch in batches.epoch(0):
        here = batch.to(device)
        with inference_mode(model):
            state = model.initial_state(batch.size) if batch.fresh else take_rows(state, slice(0, batch.size))
            losses, state = losses_of(here.inputs, here.targets, state, here.lengths)
        predicted = batch.mask() if frame is None else batch.mask() & (batch.targets != frame[1])
        yield batch, torch.where(predicted, losses.cpu().double(), 0.0), predicted  # losses at padding may be NaN


class _Sums:
    """Running sums of nats and tokens: by position, by document or stream, and by block (row of a batch).

    With `alone`, batches are independent, and each one's first position is the first that the model saw.
    """

    def __init__(self, alone: bool = False) -> None:
        self.alone, self.position = alone, 0
        self.nats = np.zeros(64)  # span k covers positions 2^k to 2^(k+1) - 1
        self.tokens = np.zeros(64, dtype=np.int64)
        self.documents: list[np.ndarray] = []  # each (2, rows): nats and tokens
        self.blocks: list[np.ndarray] = []

    def add(self, losses: Tensor, real: Tensor, fresh: bool) -> None:
        rows, time = losses.shape
        if losses.isnan().any():
            raise nan_error()
        self.position = 0 if fresh or self.alone else self.position
        spans = np.log2(np.arange(self.position + 1, self.position + time + 1)).astype(np.int64)
        np.add.at(self.nats, spans, losses.sum(0).numpy())
        np.add.at(self.tokens, spans, real.sum(0).numpy())
        self.position += time
        block = np.stack([losses.sum(1).numpy(), real.sum(1).numpy()])
        self.blocks.append(block)
        if fresh:
            self.documents.append(block.copy())
        else:
            self.documents[-1][:, :rows] += block

    def interval(self) -> Interval | None:
        documents, blocks = (np.concatenate(parts, axis=1) for parts in (self.documents, self.blocks))
        units = documents if documents.shape[1] >= MIN_UNITS else blocks
        return bootstrap_interval(*units) if np.isfinite(units).all() else None


def _score(sums: _Sums, counts: TextCounts, context: str, kind: str) -> Likelihood:
    nats, tokens = float(sums.nats.sum()), int(sums.tokens.sum())
    if tokens == 0:
        raise ElmanError("nothing to evaluate on: the batches contain no tokens")
    if tokens != counts.tokens:
        raise ElmanError(
            f"the batches contain {tokens} tokens, but the text has {counts.tokens}: bits per byte need every token "
            "once; evaluate on batches that drop none"
        )
    spelled = nats + SPELLING * (counts.unknown_bytes + counts.unknowns) + counts.surface
    interval = sums.interval()
    return Likelihood(
        loss=nats / tokens,
        loss_interval=interval,
        perplexity=perplexity(nats / tokens),
        perplexity_interval=interval and (perplexity(interval[0]), perplexity(interval[1])),
        bits_per_byte=spelled / math.log(2) / counts.bytes,
        tokens=tokens,
        bytes=counts.bytes,
        nats=spelled,
        bits_per_byte_unspelled=nats / math.log(2) / counts.bytes,
        bits_per_character=spelled / math.log(2) / (counts.characters + counts.documents),
        word_perplexity=perplexity(spelled / counts.words) if counts.words else math.inf,
        unknowns=counts.unknowns,
        unknown_rate=counts.unknowns / tokens,
        context=context,
        by_position=[
            Span(2**k, 2 ** (k + 1) - 1, float(sums.nats[k] / sums.tokens[k]), int(sums.tokens[k]))
            for k in np.flatnonzero(sums.tokens).tolist()
        ],
        kind=kind,
    )
