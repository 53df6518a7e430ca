"""The choice of least risk (Kumar and Byrne, 2004): not the most probable text, but the one most like all that are.

What shares its words with many others is seldom far off, even where one slip of the search is more probable than each.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache

from elman.evaluation import edit_distance

Similarity = Callable[[str, str], float]  # of a text to what is taken for the right one


def minimum_bayes_risk(
    candidates: Sequence[str], log_probs: Sequence[float], similarity: Similarity | None = None
) -> int:
    """Which candidate has the greatest expected similarity to the right one, if one of them is that with a chance as
    the model gives it; among equals the first. Without a similarity, chrF where sacrebleu is installed (the extra
    `metrics`), else that by edit distance."""
    assert len(candidates) == len(log_probs) > 0
    similarity = similarity or usual_similarity()
    highest = max(log_probs)
    chances = [math.exp(log_prob - highest) for log_prob in log_probs]
    expected = [
        sum(chance * similarity(text, right) for right, chance in zip(candidates, chances, strict=True))
        for text in candidates
    ]
    return expected.index(max(expected))


@cache
def usual_similarity() -> Similarity:
    try:
        from sacrebleu.metrics import CHRF
    except ImportError:
        return edit_similarity
    metric = CHRF()
    return lambda text, right: float(metric.sentence_score(text, [right]).score) / 100


def edit_similarity(text: str, right: str) -> float:
    """1 for equal texts, 0 where no character can stay: 1 − edit distance / the greater length."""
    return 1 - edit_distance(text, right) / max(len(text), len(right), 1)
