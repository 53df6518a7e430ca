"""N-grams of one order as sorted arrays: 16 bytes each (12 in the highest order), found by binary search."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from elman.models.ngram.sorting import search_sorted

ZERO = -1e30  # finite stand-in for log 0 in files
MANY = 4096  # number of queries above which sorting them first is faster


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

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        for name, own in self.named_buffers():  # tables take the size of the stored arrays, except for the vocabulary
            stored = state_dict.get(prefix + name)
            if stored is not None and not (self.words and name == "log_prob"):
                setattr(self, name, own.new_empty(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)
