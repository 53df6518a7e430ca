"""N-grams as sorted arrays: 16 bytes each (12 in the highest order), found by binary search, with back-off.

In the functions on a `line` (batch, places) of tokens, -1 if unknown, a list over lengths 0, 1, 2, … has for each place
the index of the n-gram of that length that ends there, or -1.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elman.tokenizers import EOS_ID

Ints = NDArray[np.int64]
ZERO = -1e30  # finite stand-in for log 0 in files
MANY = 4096  # number of queries above which sorting them first is faster
NO_TOKEN = -1  # before the document, or unknown


def sort_with_permutation(keys: Ints) -> tuple[Ints, Ints]:
    """Sorted keys (non-negative) and their permutation. If key and position fit into 64 bits, sorts packed integers,
    which is five times faster than argsort."""
    bits = len(keys).bit_length()
    if not len(keys) or int(keys.max()) >> (63 - bits):
        order = np.argsort(keys)
        return keys[order], order
    packed = np.sort(keys << bits | np.arange(len(keys)))
    return packed >> bits, packed & ((1 << bits) - 1)


def search_sorted(sorted_keys: Ints, wanted: Ints) -> Ints:
    """Index of each wanted key among the sorted ones, or -1. Sorted queries share the search path in cache."""
    rising, order = sort_with_permutation(wanted)
    place = np.minimum(np.searchsorted(sorted_keys, rising), len(sorted_keys) - 1)
    found = np.empty(len(wanted), np.int64)
    found[order] = np.where(sorted_keys[place] == rising, place, -1)
    return found


class Table(nn.Module):
    """Keys (context * vocabulary + word, sorted), log-probabilities, and log back-off weights as contexts. The unigram
    table has no keys: it covers the whole vocabulary."""

    keys: Tensor
    log_prob: Tensor
    backoff: Tensor

    def __init__(self, vocab_size: int, words: bool = False):
        super().__init__()
        self.vocab_size, self.words = vocab_size, words
        self.register_buffer("keys", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("log_prob", torch.full((vocab_size if words else 0,), -math.log(vocab_size)))
        self.register_buffer("backoff", torch.zeros(vocab_size if words else 0))

    def fill(self, keys: Any, log_prob: Any, backoff: Any) -> None:
        """Stores arrays of any type that torch accepts."""
        place = self.log_prob.device
        self.keys = torch.as_tensor(keys, dtype=torch.int64, device=place)
        self.log_prob = torch.as_tensor(log_prob, dtype=torch.float32, device=place)
        self.backoff = torch.as_tensor(backoff, dtype=torch.float32, device=place)

    def find(self, context: Tensor, word: Tensor) -> Tensor:
        """Index of each n-gram, or -1; a context of -1 is unknown."""
        found = torch.full_like(word, -1)
        known = ((context >= 0) & (word >= 0)).nonzero(as_tuple=True)
        if not len(self.keys) or not len(known[0]):
            return found
        wanted = context[known] * self.vocab_size + word[known]
        if wanted.device.type == "cpu" and len(wanted) >= MANY:
            found[known] = torch.from_numpy(search_sorted(self.keys.numpy(), wanted.numpy()))
            return found
        place = torch.searchsorted(self.keys, wanted).clamp_(max=len(self.keys) - 1)
        found[known] = torch.where(self.keys[place] == wanted, place, -1)
        return found

    def followers(self, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All n-grams with these contexts (a vector, -1 for none): row, last word and index of each."""
        first = torch.searchsorted(self.keys, context * self.vocab_size)
        last = torch.searchsorted(self.keys, (context + 1) * self.vocab_size)
        counts = last - first  # keys are non-negative, so -1 has none
        rows = torch.arange(len(context), device=context.device).repeat_interleave(counts)
        within = torch.arange(len(rows), device=context.device) - (counts.cumsum(0) - counts)[rows]
        numbers = first[rows] + within
        return rows, self.keys[numbers] - context[rows] * self.vocab_size, numbers

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for part in self.buffers())

    def flaw(self, contexts: int) -> str:
        """What makes these arrays no table of n-grams after so many contexts; empty for a valid table. Searches rely on
        all of it, in compiled code without further checks."""
        count = self.vocab_size if self.words else self.keys.numel()
        allowed = {"keys": [0 if self.words else count], "log_prob": [count], "backoff": [0, count]}
        for name, part in self.named_buffers():
            if part.dim() != 1 or len(part) not in allowed[name]:
                return f"{name} has shape {tuple(part.shape)}, but there are {count} n-grams"
            if part.is_floating_point() and not part.isfinite().all():
                return f"{name} has a value that is not finite"
        keys, largest = self.keys, contexts * self.vocab_size
        if largest > torch.iinfo(torch.int64).max:
            return f"{contexts} contexts and {self.vocab_size} words are too many for 64-bit keys"
        if len(keys) and not (keys[0] >= 0 and keys[-1] < largest and (keys[1:] > keys[:-1]).all()):
            return f"the keys do not rise from 0 to at most {largest - 1}"
        return ""

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        for name, own in self.named_buffers():  # tables take the size of the stored arrays, except for the vocabulary
            stored = state_dict.get(prefix + name)
            if stored is not None and not (self.words and name == "log_prob"):
                setattr(self, name, own.new_empty(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)


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
