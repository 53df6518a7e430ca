"""Sampling of rows whose settings differ, without the host: the settings are tensors, one number for each row.

The arithmetic is that of `sampling.process_logits`, so a row draws the token that it draws by itself; a setting that is
off changes nothing (a penalty of 1, a bias of 0, all tokens among the top k).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from elman.generation.sampling import (
    NO_TOKEN,
    TOP_P_TOLERANCE,
    GenerationConfig,
    penalize,
    sample,
    sampling_dtype,
)
from elman.shapes import Step, Token

COLUMNS = 9  # numbers that `settings_of` gives


class RowSettings(NamedTuple):
    """Each (rows, 1)."""

    temperature: Tensor
    top_k: Tensor  # the number of tokens where it is off
    top_p: Tensor
    least: Tensor  # logarithm of min-p; -inf where it is off
    excluded: Tensor  # a token that is never drawn, or NO_TOKEN
    repetition: Tensor
    window: Tensor
    presence: Tensor
    frequency: Tensor

    @classmethod
    def of(cls, numbers: Tensor) -> "RowSettings":
        """From the numbers (rows, columns) of `settings_of`."""
        return cls(*numbers.split(1, dim=1))


class RowPenalties(NamedTuple):
    """What the penalties and the bias of each row depend on."""

    recent: Tensor  # latest tokens (rows, at least the largest window), newest last
    counts: Tensor  # how often each token was generated (rows, vocabulary)
    bias: Tensor  # added to the logits (rows, vocabulary)


def settings_of(config: GenerationConfig, vocabulary: int, excluded: int | None) -> list[float]:
    """The settings of one row as numbers, in the order of `RowSettings`."""
    least = math.log(config.min_p) - TOP_P_TOLERANCE if config.min_p else -math.inf
    return [
        config.temperature,
        min(config.top_k or vocabulary, vocabulary),
        config.top_p,
        least,
        NO_TOKEN if excluded is None else excluded,
        config.repetition_penalty,
        config.repetition_window,
        config.presence_penalty,
        config.frequency_penalty,
    ]


def is_penalized(config: GenerationConfig) -> bool:
    """Whether a row's logits depend on `RowPenalties`."""
    return config.repetition_penalty != 1 or config.counts_tokens or bool(config.logit_bias)


def is_truncated(config: GenerationConfig) -> bool:
    """Whether some tokens are cut off before a draw."""
    cut = config.top_k > 0 or config.top_p < 1 or config.min_p > 0
    return cut and config.temperature > 0


def tokens_of_rows(
    logits: Step, uniforms: Tensor, settings: RowSettings, penalties: RowPenalties | None, truncated: bool
) -> Token:
    """The next token of each row, given one number in [0, 1) per row. Without `penalties` and `truncated` no row may
    have any."""
    processed = logits.to(sampling_dtype(logits))
    tokens = torch.arange(processed.shape[-1], device=processed.device)
    if penalties is not None:
        recent, counts, bias = penalties
        ages = torch.arange(recent.shape[1], 0, -1, device=recent.device)
        processed = penalize(processed, torch.where(ages <= settings.window, recent, NO_TOKEN), settings.repetition)
        processed = processed - counts * settings.frequency - (counts > 0) * settings.presence + bias
    processed = processed.masked_fill(tokens == settings.excluded, -torch.inf)
    likeliest = processed.argmax(dim=-1, keepdim=True)
    greedy = settings.temperature == 0
    processed = (processed - processed.gather(1, likeliest)) / torch.where(greedy, 1, settings.temperature)
    if truncated:
        processed = truncate(processed, settings)
    return torch.where(greedy, likeliest, sample(processed, uniforms).unsqueeze(1)).squeeze(1)


def truncate(logits: Step, settings: RowSettings) -> Step:
    """Top-k, top-p and min-p; the tokens that are cut off are -inf. Of equal logits the lowest ids stay."""
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(logits.shape[-1], device=logits.device)
    cut = ordered.masked_fill(ranks >= settings.top_k, -torch.inf)
    reached = cut.softmax(dim=-1).cumsum(dim=-1)
    size = (reached < settings.top_p - TOP_P_TOLERANCE).sum(dim=-1, keepdim=True) + 1
    cut = cut.masked_fill((settings.top_p < 1) & (ranks >= size), -torch.inf)
    return torch.empty_like(logits).scatter_(1, ids, cut.masked_fill(cut < settings.least, -torch.inf))
