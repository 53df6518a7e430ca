"""Metrics of generated sequences against references: BLEU, chrF, exact match, word and character error rate.

BLEU and chrF are those of sacrebleu, with their signature. Error rates are edit distances divided by reference length.
For pronunciations, where a sequence is one word, the usual word error rate is 1 − exact match.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from elman.errors import DataError, MissingExtra
from elman.evaluation.significance import (
    MIN_UNITS,
    Interval,
    bootstrap_interval,
    deviations,
    percentiles,
    share_interval,
)

MAX_OWN_SAMPLES = 100  # of the slow fallback bootstrap
# No warning about tokenized text: the model is evaluated on the form it was trained on, which the signature shows.
BLEU_OPTIONS: dict[str, Any] = {"force": True}
NGRAMS = 4  # BLEU's longest n-grams: without a reference of this length, BLEU is always 0


@dataclass(frozen=True)
class Metric:
    """A metric with its 95 % confidence interval, none of few pairs, and sacrebleu's signature."""

    value: float
    interval: Interval | None
    signature: str = ""


@dataclass(frozen=True)
class Paired:
    """Two scores on the same sentences, and the p-value of their difference."""

    first: float
    second: float
    p_value: float


def score_translations(
    written: Sequence[str], references: Sequence[str], *, bleu: bool = True, samples: int = 1000
) -> dict[str, Metric]:
    """`exact_match`, `word_error_rate`, `character_error_rate` from 0 to 1; `bleu` and `chrf` from 0 to 100."""
    if len(written) != len(references) or not written:
        raise DataError(f"{len(written)} sequences to evaluate against {len(references)} references")
    exact = np.array([a.strip() == b.strip() for a, b in zip(written, references, strict=True)], dtype=np.float64)
    found = {
        "exact_match": Metric(float(exact.mean()), share_interval(exact)),
        "word_error_rate": _error_rate([x.split() for x in written], [x.split() for x in references], samples),
        "character_error_rate": _error_rate(written, references, samples),
    }
    return found | (sacrebleu_scores(written, references, samples) if bleu and _has_long_reference(references) else {})


def why_no_bleu(references: Iterable[str]) -> str:
    """The reason why BLEU and chrF cannot be computed or are meaningless here, or an empty string."""
    if not _has_long_reference(references):
        return f"no target has {NGRAMS} words"
    try:
        _sacrebleu()
    except MissingExtra as missing:
        return str(missing)
    return ""


def _has_long_reference(references: Iterable[str]) -> bool:
    return any(len(reference.split()) >= NGRAMS for reference in references)


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError:
        raise MissingExtra("scoring by BLEU and chrF", "sacrebleu", "metrics") from None
    return sacrebleu.metrics


def sacrebleu_scores(written: Sequence[str], references: Sequence[str], samples: int = 1000) -> dict[str, Metric]:
    """BLEU and chrF over all sequences, with sacrebleu's own bootstrap."""
    module = _sacrebleu()
    metrics: dict[str, Any] = {"bleu": module.BLEU(**BLEU_OPTIONS), "chrf": module.CHRF()}
    found = {}
    for name, metric in metrics.items():
        score = metric.corpus_score(list(written), [list(references)])
        interval = _bootstrap(metric, written, references, samples)
        found[name] = Metric(float(score.score), interval, str(metric.get_signature()))
    return found


def _bootstrap(metric: Any, written: Sequence[str], references: Sequence[str], samples: int) -> Interval | None:
    """Sacrebleu's bootstrap, widened to Student's t. It raises TypeError (mixed number types) if some sample has no
    n-gram in common with its references; then a few samples of our own."""
    if len(written) < MIN_UNITS:
        return None
    try:
        score = metric.corpus_score(list(written), [list(references)], n_bootstrap=max(2, samples))
        half = float(score._ci) * deviations(len(written)) / NormalDist().inv_cdf(0.975)
        return max(0.0, float(score._mean) - half), min(100.0, float(score._mean) + half)
    except TypeError:
        rng = np.random.default_rng(0)
        draws = [rng.integers(len(written), size=len(written)) for _ in range(min(samples, MAX_OWN_SAMPLES))]
        scores = [
            metric.corpus_score([written[i] for i in draw], [[references[i] for i in draw]]).score for draw in draws
        ]
        return percentiles(np.array(scores, dtype=np.float64), len(written))


def paired_bleu(first: Sequence[str], second: Sequence[str], references: Sequence[str], samples: int = 1000) -> Paired:
    """Significance of a BLEU difference: sacrebleu's paired bootstrap (Koehn, 2004)."""
    metrics = {"BLEU": _sacrebleu().BLEU(**BLEU_OPTIONS)}
    from sacrebleu.significance import PairedTest

    named: Any = [("first", list(first)), ("second", list(second))]
    _, found = PairedTest(named, metrics, [list(references)], test_type="bs", n_samples=samples)()
    scores: Any = next(value for key, value in found.items() if key != "System")
    return Paired(float(scores[0].score), float(scores[1].score), float(scores[1].p_value))


def edit_distance(hypothesis: Sequence[Any], reference: Sequence[Any]) -> int:
    """Levenshtein distance: the fewest insertions, deletions and substitutions."""
    ids = {unit: number for number, unit in enumerate(dict.fromkeys([*hypothesis, *reference]))}
    units = np.array([ids[unit] for unit in reference], dtype=np.int64)
    columns = np.arange(len(units) + 1)
    row = columns.copy()  # distances of the prefix of the hypothesis to each prefix of the reference
    for unit in hypothesis:
        best = np.minimum(row[1:] + 1, row[:-1] + (units != ids[unit]))
        row = np.concatenate([[row[0] + 1], best])
        row = np.minimum.accumulate(row - columns) + columns  # runs of insertions
    return int(row[-1])


def _error_rate(written: Sequence[Sequence[Any]], references: Sequence[Sequence[Any]], samples: int) -> Metric:
    errors = np.array([edit_distance(a, b) for a, b in zip(written, references, strict=True)], dtype=np.float64)
    sizes = np.array([len(reference) for reference in references], dtype=np.float64)
    if not sizes.sum():
        raise DataError("all references are empty: error rates are undefined")
    return Metric(float(errors.sum() / sizes.sum()), bootstrap_interval(errors, sizes, samples=samples))
