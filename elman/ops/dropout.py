"""Dropout that keeps its mask: the same units for a whole sequence, or whole words."""

import torch.nn.functional as F
from torch import Tensor

from elman.shapes import Sequence, Tokens


def locked_dropout(x: Sequence, p: float, training: bool) -> Sequence:
    """Each row of the batch loses the same units at all its time steps (variational dropout, Gal & Ghahramani 2016)."""
    if not training or p == 0:
        return x
    return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), p)


def embedded(tokens: Tokens, weight: Tensor, p: float, training: bool) -> Sequence:
    """Rows of a table of embeddings; a dropped word is gone everywhere in the batch (Merity et al. 2018)."""
    x = F.embedding(tokens, weight)
    if not training or p == 0:
        return x
    return x * F.dropout(weight.new_ones(len(weight), 1), p)[tokens]
