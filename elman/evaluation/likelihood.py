"""How well a model predicts text: loss, perplexity and bits per byte, which compares across vocabularies.

A model without a token for a word says `<unk>`, which is cheap and tells nothing. So bits per byte also count the
spelling of each unknown word: its bytes and an end mark, one of 257 equally probable signs each.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from elman.errors import ElmanError
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.evaluation.jsonable import jsonable
from elman.evaluation.significance import bootstrap_interval
from elman.models import KINDS, prediction_of
from elman.ops.state import take_rows

SPELLING = math.log(257)  # nats of one byte, or of the end mark, of an unknown word
FEW = 30  # documents; an interval over fewer is taken over blocks of text instead


class Facts(Protocol):
    """What must be known of the text that the tokens came from."""

    @property
    def documents(self) -> int: ...
    @property
    def tokens(self) -> int: ...  # each document's `<eos>` counted
    @property
    def bytes(self) -> int: ...  # separators of documents counted
    @property
    def characters(self) -> int: ...  # separators not counted
    @property
    def words(self) -> int: ...  # what stands between white space
    @property
    def unknowns(self) -> int: ...  # tokens that are `<unk>` though the text does not say so
    @property
    def unknown_bytes(self) -> int: ...  # bytes of the words behind them


class Span(NamedTuple):
    """The loss at some positions, counted from 1, both ends included: how much a longer past helps."""

    start: int
    end: int
    loss: float
    tokens: int


@dataclass(frozen=True)
class Likelihood:
    loss: float
    """Nats per token; each document's end is a token."""
    perplexity: float
    """exp(loss): compares only models with the same tokens."""
    bits_per_byte: float
    """Bits for each byte of the text, the spelling of unknown words included: compares all models."""
    tokens: int
    nats: float
    """Of the whole text, the spelling of unknown words included."""
    bits_per_byte_unspelled: float
    """The same, with unknown words for free."""
    bits_per_character: float
    """As bits per byte, for each character; a document's end is one."""
    word_perplexity: float
    """exp(total nats / words between white space), spelling and ends of documents in the total."""
    unknowns: int
    unknown_rate: float
    """Unknowns among all tokens."""
    interval: tuple[float, float] | None
    """Where the loss would lie on other such text (95 %), by drawing documents, or blocks of long ones, anew."""
    context: str
    """How much of the past the model saw."""
    by_position: list[Span]
    """The loss from the first token that the model saw on: of the document, or of the lane if the state is carried."""
    kind: str = "likelihood"
    """Or pseudo-likelihood, of a model that sees both sides of a token: that compares with its like only."""
    language: dict[str, Any] | None = None
    """Beside the true distribution, where that is known."""

    def plain(self) -> dict[str, Any]:
        """For JSON, which knows no infinity: null stands for it."""
        return jsonable(self)


def evaluate(
    model: Any,
    batches: Any,
    facts: Facts,
    context: str,
    progress: Callable[[int, int], None] | None = None,
    *,
    quick: bool = False,
) -> Likelihood:
    """The score over one epoch of batches that cover the text of `facts`; `progress` hears tokens done and in all.

    `quick` takes the losses that a model offers for following its training, where the exact ones are dear.
    """
    kind = KINDS[prediction_of(model)]
    sums = _Sums(alone=kind == "pseudo-likelihood")
    losses_of = getattr(model, "quick_losses", model.losses) if quick else model.losses
    device = device_of(model)
    state: Any = None
    for batch in batches.epoch(0):
        rows = len(batch.inputs)
        inputs, targets = batch.inputs.to(device), batch.targets.to(device)
        lengths = None if batch.lengths is None else batch.lengths.to(device)
        with inference_mode(model):
            state = model.initial_state(rows) if batch.fresh else take_rows(state, slice(0, rows))
            losses, state = losses_of(inputs, targets, state, lengths)
            sums.add(losses.cpu().double(), None if lengths is None else lengths.cpu(), batch.fresh)
        if progress:
            progress(int(sums.tokens.sum()), facts.tokens)
    return _score(sums, facts, context, kind)


class _Sums:
    """Nats and tokens so far: in all by position, by row since it began, and by row of each batch.

    With `alone`, every batch is read on its own, and its first position is the first that the model saw.
    """

    def __init__(self, alone: bool = False) -> None:
        self.alone, self.position = alone, 0
        self.nats = np.zeros(64)  # span k holds the positions from 2^k up to 2^(k+1) - 1
        self.tokens = np.zeros(64, dtype=np.int64)
        self.documents: list[np.ndarray] = []  # each (2, rows): nats and tokens
        self.blocks: list[np.ndarray] = []

    def add(self, losses: Tensor, lengths: Tensor | None, fresh: bool) -> None:
        rows, time = losses.shape
        real = torch.ones(rows, time, dtype=torch.bool)
        if lengths is not None:
            real = torch.arange(time) < lengths.unsqueeze(1)
            losses = torch.where(real, losses, 0.0)  # padding may hold anything, NaN too
        if losses.isnan().any():
            raise ElmanError(
                "the model's loss is not a number: it was trained with too large a learning rate or damaged since; "
                "try an earlier checkpoint"
            )
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

    def interval(self) -> tuple[float, float] | None:
        documents, blocks = (np.concatenate(parts, axis=1) for parts in (self.documents, self.blocks))
        units = documents if documents.shape[1] >= FEW else blocks
        return bootstrap_interval(*units) if units.shape[1] > 1 and np.isfinite(units).all() else None


def _score(sums: _Sums, facts: Facts, context: str, kind: str) -> Likelihood:
    nats, tokens = float(sums.nats.sum()), int(sums.tokens.sum())
    if tokens == 0:
        raise ElmanError("there is nothing to evaluate on: the batches hold no token")
    if tokens != facts.tokens:
        raise ElmanError(
            f"the batches hold {tokens} tokens, but the text has {facts.tokens}: bits per byte need every token once; "
            "evaluate on batches that drop nothing"
        )
    spelled = nats + SPELLING * (facts.unknown_bytes + facts.unknowns)
    return Likelihood(
        loss=nats / tokens,
        perplexity=_exp(nats / tokens),
        bits_per_byte=spelled / math.log(2) / facts.bytes,
        tokens=tokens,
        nats=spelled,
        bits_per_byte_unspelled=nats / math.log(2) / facts.bytes,
        bits_per_character=spelled / math.log(2) / (facts.characters + facts.documents),
        word_perplexity=_exp(spelled / facts.words) if facts.words else math.inf,
        unknowns=facts.unknowns,
        unknown_rate=facts.unknowns / tokens,
        interval=sums.interval(),
        context=context,
        by_position=[
            Span(2**k, 2 ** (k + 1) - 1, float(sums.nats[k] / sums.tokens[k]), int(sums.tokens[k]))
            for k in np.flatnonzero(sums.tokens).tolist()
        ],
        kind=kind,
    )


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
