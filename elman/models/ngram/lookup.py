"""Vectorized n-gram lookup: contexts of many positions, and word probabilities with back-off.

`line` is (batch, places) of tokens, -1 if unknown. A list over lengths 0, 1, 2, … has for each place the index of the
n-gram of that length that ends there, or -1.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.models.ngram.tables import ZERO, Table
from elman.tokenizers import EOS_ID

NO_TOKEN = -1  # before the document, or unknown


class BackOff(NamedTuple):
    """For each word: length of the longest known n-gram that ends in it, its log-probability, and the sum of back-off
    weights."""

    order: Tensor
    log_prob: Tensor
    backoff: Tensor


def find_ngrams(tables: Sequence[Table], line: Tensor, longest: int) -> tuple[list[Tensor], list[Tensor]]:
    """N-grams up to `longest` at each place: as contexts of the next token, and as they end there."""
    within = line != EOS_ID
    found = [torch.zeros_like(line), line]
    contexts = [torch.zeros_like(line), line]
    for length in range(2, longest + 1):
        before = F.pad(contexts[-1], (1, 0), value=NO_TOKEN)[:, :-1]
        found.append(tables[length - 1].find(before, line))
        contexts.append(torch.where(within, found[-1], NO_TOKEN))  # as a context, `<eos>` starts a document
    return contexts, found


def extend_contexts(tables: Sequence[Table], contexts: list[Tensor], words: Tensor) -> list[Tensor]:
    """The n-grams formed by contexts and next words."""
    longer = [table.find(context, words) for table, context in zip(tables[1:], contexts[1:], strict=True)]
    return [torch.zeros_like(words), words, *longer]


def back_off(tables: Sequence[Table], contexts: list[Tensor], found: list[Tensor]) -> BackOff:
    """Back-off: the longest known n-gram of each word."""
    order = (found[1] >= 0).long()
    log_prob = tables[0].log_prob[found[1].clamp(min=0)]
    backoff = torch.zeros_like(log_prob)
    for length in range(2, len(tables) + 1):
        hit = found[length] >= 0
        log_prob = torch.where(hit, _at(tables[length - 1].log_prob, found[length]), log_prob)
        backoff = torch.where(hit, 0.0, backoff + _at(tables[length - 2].backoff, contexts[length - 1]))
        order = torch.where(hit, length, order)
    return BackOff(order, log_prob, backoff)


def all_words(tables: Sequence[Table], contexts: list[Tensor]) -> Tensor:
    """Log-probabilities of all words (batch, time, word): short contexts first, overwritten by longer ones."""
    flat = [context.flatten() for context in contexts]
    costs = [torch.zeros(len(flat[0]), dtype=tables[0].log_prob.dtype, device=flat[0].device)]
    for table, context in zip(tables[-2::-1], flat[:0:-1], strict=True):
        costs.append(costs[-1] + _at(table.backoff, context))
    result = tables[0].log_prob + costs.pop().unsqueeze(1)
    for table, context in zip(tables[1:], flat[1:], strict=True):
        rows, words, numbers = table.followers(context)
        result[rows, words] = table.log_prob[numbers] + costs.pop()[rows]
    return with_zeros(result).view(*contexts[0].shape, len(tables[0].log_prob))


def with_zeros(log_prob: Tensor) -> Tensor:
    """Maps the stored finite stand-in for log 0 to -inf."""
    return log_prob.masked_fill(log_prob < ZERO / 2, -math.inf)


def _at(values: Tensor, numbers: Tensor) -> Tensor:
    """Values by index; 0 for -1."""
    if not len(values):
        return torch.zeros(numbers.shape, dtype=values.dtype, device=values.device)
    return torch.where(numbers >= 0, values[numbers.clamp(min=0)], 0.0)
