"""Minimum Bayes risk decoding (Kumar and Byrne, 2004): the candidate most similar to all others, by probability.

A consensus of many candidates is seldom far off, even if some bad candidate is more probable than each of them.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache

from elman.evaluation import edit_distance

Similarity = Callable[[str, str], float]  # of a candidate to a reference


def minimum_bayes_risk(
    candidates: Sequence[str], log_probs: Sequence[float], similarity: Similarity | None = None
) -> int:
    """Index of the candidate with the highest expected similarity to a reference that is drawn from the candidates by
    their probabilities; the first among equals. Default similarity: chrF if sacrebleu is installed (the extra
    `metrics`), else normalized edit distance."""
    assert len(candidates) == len(log_probs) > 0
    similarity = similarity or default_similarity()
    highest = max(log_probs)
    weights = [math.exp(log_prob - highest) for log_prob in log_probs]
    expected = [
        sum(weight * similarity(text, reference) for reference, weight in zip(candidates, weights, strict=True))
        for text in candidates
    ]
    return expected.index(max(expected))


@cache
def default_similarity() -> Similarity:
    try:
        from sacrebleu.metrics import CHRF
    except ImportError:
        return edit_similarity
    metric = CHRF()
    return lambda text, right: float(metric.sentence_score(text, [right]).score) / 100


def edit_similarity(text: str, right: str) -> float:
    """1 − edit distance / length of the longer text."""
    return 1 - edit_distance(text, right) / max(len(text), len(right), 1)
