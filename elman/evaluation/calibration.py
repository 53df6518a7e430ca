"""Calibration by temperature (Guo et al., 2017): one number divides all logits, so that probabilities fit the data."""

import numpy as np
from numpy.typing import NDArray

SPAN = 20.0  # the temperature is between 1 / SPAN and SPAN
HALVINGS = 50


def fit_temperature(logits: NDArray[np.floating], truth: NDArray[np.integer]) -> float:
    """The temperature with the lowest loss: cross-entropy of logits (texts, labels) against indices (texts,), or binary
    cross-entropy against 0/1 vectors (texts, labels). 1 where the loss falls with every lower temperature, because all
    answers are right: they cannot say how sure one may be.

    The loss is convex in 1 / temperature, so its slope has one zero.
    """
    logits = logits.astype(np.float64)
    several = truth.ndim == 2
    right = (logits * truth).sum() if several else logits[np.arange(len(truth)), truth].sum()

    def slope(scale: float) -> float:
        if several:
            return float((logits / (1 + np.exp(np.clip(-scale * logits, -700, 700)))).sum() - right)
        scaled = scale * logits
        chances = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return float((chances * logits).sum() - right)

    if slope(SPAN) <= 0:
        return 1.0
    low, high = -np.log(SPAN), np.log(SPAN)  # of the logarithm of 1 / temperature
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(np.exp(middle)) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))
