"""Dropout with a mask shared over time (variational dropout), and dropout of whole words (embedding dropout)."""

import torch.nn.functional as F
from torch import Tensor

from elman.shapes import Sequence, Tokens


def locked_dropout(x: Sequence, p: float, training: bool) -> Sequence:
    """Variational dropout (Gal & Ghahramani, 2016): one mask (batch, 1, width) for all time steps."""
    if not training or p == 0:
        return x
    return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), p)


def embedded(tokens: Tokens, weight: Tensor, p: float, training: bool) -> Sequence:
    """Embedding lookup with embedding dropout (Merity et al., 2018): a dropped word is zero everywhere in the batch."""
    x = F.embedding(tokens, weight)
    if not training or p == 0:
        return x
    return x * F.dropout(weight.new_ones(len(weight), 1), p)[tokens]
