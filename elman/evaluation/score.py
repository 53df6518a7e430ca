"""Scores the probability of single texts, in batches, each from a fresh state."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from elman.batches.groups import groups
from elman.errors import nan_error
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.models import LIKELIHOOD_OF, frame_of, prediction_of
from elman.tokenizers.surface import spelled

ROWS = 64  # texts per batch
LENGTH = 256  # chunk length: bounds the memory of long texts


@dataclass(frozen=True)
class Score:
    text: str
    log_prob: float
    """Natural logarithm of the text's probability, including its end, with unknown words as `<unk>`."""
    tokens: int
    """Predicted ones: including the end of the text, unless the model is given it, as BERT is [SEP]."""
    unknowns: int
    bits_per_byte: float
    """Over the text's bytes, plus one for its end if predicted, including what the tokens lack: unknown words, case,
    spacing."""
    kind: str = "likelihood"
    """Or pseudo-likelihood: the product of each token's probability given all others (no chain rule)."""

    def line(self) -> str:
        """Log-probability, bits per byte and text, separated by tabs."""
        return f"{self.log_prob:.4f}\t{self.bits_per_byte:.4f}\t{self.text}"

    def plain(self) -> dict[str, Any]:
        """All fields and the perplexity, as JSON values."""
        return asdict(self) | {"perplexity": math.exp(min(-self.log_prob / max(self.tokens, 1), 700))}


def score_texts(
    model: Any,
    tokenizer: Any,
    texts: Iterable[str],
    length: int = LENGTH,
    rows: int = ROWS,
    losses: Callable[..., Any] | None = None,
) -> Iterator[Score]:
    """Yields one score per text, in order, in batches of `rows`; the input may be an endless stream.

    Texts are processed in chunks of `length` tokens; for a model without a state (masked), chunks are independent.
    `losses` replaces `model.losses`.
    """
    for group in groups(texts, rows):
        yield from _score_group(model, tokenizer, group, length, losses or model.losses)


def _score_group(
    model: Any, tokenizer: Any, texts: list[str], length: int, losses_of: Callable[..., Any]
) -> Iterator[Score]:
    encoded = [ids.tolist() for ids in tokenizer.encode_batch(texts)]
    order = sorted(range(len(texts)), key=lambda row: -len(encoded[row]))
    device, eos, ends = device_of(model), tokenizer.eos_id, int(frame_of(model) is None)
    lengths = torch.tensor([len(encoded[row]) + 1 for row in order])
    rows = [torch.tensor([*encoded[row], eos]) for row in order]
    targets = pad_sequence(rows, batch_first=True, padding_value=eos)
    inputs = torch.cat([torch.full((len(texts), 1), tokenizer.start_id), targets[:, :-1]], dim=1)
    nats = torch.zeros(len(texts), dtype=torch.float64)
    with inference_mode(model):
        state = model.initial_state(len(texts))
        for start in range(0, targets.shape[1], length):
            part = slice(start, start + length)
            here = (lengths - start).clamp(0, length)
            given, wanted = inputs[:, part].to(device), targets[:, part].to(device)
            losses, state = losses_of(given, wanted, state, here.to(device))
            real = torch.arange(losses.shape[1]) < here[:, None]
            nats += torch.where(real, losses.cpu().double(), 0.0).sum(1)
    if nats.isnan().any():
        raise nan_error()
    for row, total in sorted(zip(order, nats.tolist(), strict=True)):
        unknown = tokenizer.unknowns(texts[row])
        rest = sum(map(spelled, unknown)) + tokenizer.surface_nats(texts[row])
        size = len(texts[row].encode("utf-8", "surrogatepass")) + ends
        bits = (total + rest) / math.log(2) / max(size, 1)
        kind = LIKELIHOOD_OF[prediction_of(model)]
        yield Score(texts[row], -total, len(encoded[row]) + ends, len(unknown), bits, kind)
