"""Long texts in pictures: neighbouring positions become one column, and a note says so."""

from collections.abc import Sequence

import numpy as np

from elman.figures.panels import Array

COLUMNS = 200  # of a picture at the most: more can neither be named nor seen


def together(count: int) -> int:
    """How many positions share a column."""
    return -(-count // COLUMNS)


def names(tokens: Sequence[str]) -> list[str]:
    """The first token of each column."""
    return list(tokens[:: max(1, together(len(tokens)))])


def means(matrix: Array, axis: int = -1) -> Array:
    """Of the values that share a column."""
    count = matrix.shape[axis]
    step = together(count)
    if step <= 1:
        return matrix
    starts = np.arange(0, count, step)
    shape = [1] * matrix.ndim
    shape[axis] = -1
    return np.add.reduceat(matrix, starts, axis) / np.diff([*starts, count]).reshape(shape)


def shares(weights: Array) -> Array:
    """Of attention (..., rows, columns): who looks becomes a mean, whom it looks at a sum: rows still add up to one."""
    rows, count = means(weights, -2), weights.shape[-1]
    step = together(count)
    return rows if step <= 1 else np.add.reduceat(rows, np.arange(0, count, step), -1)


def note(count: int) -> list[str]:
    step = together(count)
    if step <= 1:
        return []
    return [f"{count} positions in {-(-count // step)} columns: each is the mean of {step}, named by its first."]
