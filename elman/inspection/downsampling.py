"""Downsampling of long texts: neighbouring positions share a column of a figure, and a note says so."""

from collections.abc import Sequence

import numpy as np

from elman.figures.panels import Array

COLUMNS = 200  # of a figure at most, so that they can be labelled


def stride(count: int) -> int:
    """Positions that share a column."""
    return -(-count // COLUMNS)


def names(tokens: Sequence[str]) -> list[str]:
    """The first token of each column."""
    return list(tokens[:: max(1, stride(len(tokens)))])


def means(matrix: Array, axis: int = -1) -> Array:
    """Mean of the values that share a column."""
    count = matrix.shape[axis]
    step = stride(count)
    if step <= 1:
        return matrix
    starts = np.arange(0, count, step)
    shape = [1] * matrix.ndim
    shape[axis] = -1
    return np.add.reduceat(matrix, starts, axis) / np.diff([*starts, count]).reshape(shape)


def shares(weights: Array) -> Array:
    """Attention (..., queries, keys): the mean over queries and the sum over keys, so that rows still add up to one."""
    rows, count = means(weights, -2), weights.shape[-1]
    step = stride(count)
    return rows if step <= 1 else np.add.reduceat(rows, np.arange(0, count, step), -1)


def note(count: int) -> list[str]:
    step = stride(count)
    if step <= 1:
        return []
    return [f"{count} positions in {-(-count // step)} columns: each is the mean of {step}, labelled by its first."]
