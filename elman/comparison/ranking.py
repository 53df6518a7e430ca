"""Ranking with significance: a winner needs disjoint intervals and significant tests over seeds and documents."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.evaluation import bootstrap_interval, paired_difference
from elman.evaluation.significance import student

LEVEL = 0.05  # significance level
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Scores of an entrant: of each seed, and of each document as the mean over seeds."""

    values: Sequence[float]
    exact: bool = False  # a deterministic model, which runs once
    documents: Numbers | None = None
    weights: Numbers | None = None

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; none from a single one."""
        if len(self.values) > 1:
            return float(np.std(self.values, ddof=1))
        return 0.0 if self.exact else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Bootstrap interval of the mean over seeds. Of three seeds one interval in four misses the true mean, so it is
        not called a 95 % interval, and significance is decided by the tests."""
        if len(self.values) > 1:
            return bootstrap_interval(self.values, least=2)
        return (self.mean, self.mean) if self.exact else None

    @property
    def repeated(self) -> bool:
        return self.exact or len(self.values) > 1


@dataclass(frozen=True)
class Comparison:
    """The best entrant against another."""

    difference: float  # of the means: the other's minus the best's
    by_seed: float | None  # p-value, corrected for the number of comparisons
    by_document: float | None
    overlap: bool
    apart: bool
    why: str = ""  # it is not significant


@dataclass(frozen=True)
class Verdict:
    """The order from best to worst; a winner, or the entrants that do not differ significantly."""

    order: list[str]
    winner: str | None
    tied: list[str]  # with the best, itself included
    comparisons: dict[str, Comparison] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return asdict(self)


def rank(scores: Mapping[str, Scores], lower_is_better: bool) -> Verdict:
    """Entrants without a finite score come last, without a comparison."""
    sign = 1 if lower_is_better else -1
    order = sorted(scores, key=lambda name: (not math.isfinite(scores[name].mean), sign * scores[name].mean))
    running = [name for name in order if math.isfinite(scores[name].mean)]
    if len(running) < 2:
        return Verdict(order, None, running)
    best, others = running[0], running[1:]
    seeds = hochberg(
        {name: welch(scores[best].values, scores[name].values) for name in others if _both(scores, best, name)}
    )
    documents = hochberg({name: found for name in others if (found := _paired(scores[best], scores[name])) is not None})
    comparisons = {}
    for name in others:
        by_seed, by_document = seeds.get(name), documents.get(name)
        overlap = overlapping(scores[best].interval, scores[name].interval)
        reasons = [] if _both(scores, best, name) else ["one seed has no spread"]
        reasons += ["their intervals overlap"] if overlap else []
        reasons += [f"p = {by_seed:.2g} by seed"] if by_seed is not None and by_seed >= LEVEL else []
        reasons += [f"p = {by_document:.2g} by document"] if by_document is not None and by_document >= LEVEL else []
        difference = scores[name].mean - scores[best].mean
        comparisons[name] = Comparison(difference, by_seed, by_document, overlap, not reasons, ", ".join(reasons))
    tied = [best, *(name for name in others if not comparisons[name].apart)]
    return Verdict(order, best if len(tied) == 1 else None, tied, comparisons)


def overlapping(first: tuple[float, float] | None, second: tuple[float, float] | None) -> bool:
    """Whether two intervals share a point; an unknown one counts as overlapping."""
    if first is None or second is None:
        return True
    return max(first[0], second[0]) <= min(first[1], second[1])


def welch(first: Sequence[float], second: Sequence[float]) -> float:
    """p-value of Welch's t-test (1947) for two means with unequal variances.

    A single value is of a deterministic model, whose mean is known exactly.
    """
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    errors = [float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.0 for part in (one, other)]
    difference = abs(float(one.mean() - other.mean()))
    if not sum(errors):
        return float(difference == 0)
    freedom = sum(errors) ** 2 / sum(e**2 / max(1, len(part) - 1) for e, part in zip(errors, (one, other), strict=True))
    return student(difference / math.sqrt(sum(errors)), freedom)


def hochberg(chances: Mapping[str, float]) -> dict[str, float]:
    """p-values adjusted for multiple comparisons (Hochberg, 1988): controls the family-wise error rate.

    It needs positive dependence, which comparisons with one and the same best have; a simulation tests the level.
    """
    corrected: dict[str, float] = {}
    least = 1.0
    for place, name in enumerate(sorted(chances, key=lambda name: -chances[name]), start=1):
        least = min(least, chances[name] * place)
        corrected[name] = least
    return corrected


def _both(scores: Mapping[str, Scores], first: str, second: str) -> bool:
    return scores[first].repeated and scores[second].repeated


def _paired(first: Scores, second: Scores) -> float | None:
    if first.documents is None or second.documents is None or len(first.documents) != len(second.documents):
        return None
    if len(first.documents) < 2 or not (np.isfinite(first.documents).all() and np.isfinite(second.documents).all()):
        return None
    return paired_difference(first.documents, second.documents, first.weights).p_value
