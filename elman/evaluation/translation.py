"""How good are written sequences, measured against references: BLEU, chrF, exact match and error rates.

BLEU and chrF are sacrebleu's, with the signature that makes them comparable. Error rates are edit distances over the
lengths of the references, in words and in characters; where a whole sequence counts as one word, as for
pronunciations, the error rate of the field is 1 − exact match.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.errors import DataError, MissingExtra
from elman.evaluation.significance import bootstrap_interval, share_interval

Interval = tuple[float, float]
FEW = 100  # draws of our own, which are dear
NGRAMS = 4  # BLEU counts rows of up to so many words: where no reference has as many, it is 0 whatever was written


@dataclass(frozen=True)
class Measure:
    """A number, where it lies in 95 of 100 samples drawn anew, and how it was computed."""

    value: float
    interval: Interval
    signature: str = ""


@dataclass(frozen=True)
class Paired:
    """Two scores on the same sentences, and the chance of such a difference between equals."""

    first: float
    second: float
    p_value: float


def judge_translations(
    written: Sequence[str], references: Sequence[str], *, bleu: bool = True, samples: int = 1000, seed: int = 0
) -> dict[str, Measure]:
    """`exact_match`, `word_error_rate`, `character_error_rate` as shares; `bleu` and `chrf` of 100, as is custom."""
    if len(written) != len(references) or not written:
        raise DataError(f"{len(written)} sequences to be judged by {len(references)} references")
    exact = np.array([a.strip() == b.strip() for a, b in zip(written, references, strict=True)], dtype=np.float64)
    found = {
        "exact_match": Measure(float(exact.mean()), share_interval(exact)),
        "word_error_rate": _error_rate([x.split() for x in written], [x.split() for x in references], samples, seed),
        "character_error_rate": _error_rate(written, references, samples, seed),
    }
    return found | (sacrebleu_scores(written, references, samples) if bleu and _long(references) else {})


def why_no_bleu(references: Iterable[str]) -> str:
    """Why BLEU, and chrF beside it, cannot tell anything by these references; empty where it can."""
    if not _long(references):
        return f"no target has {NGRAMS} words"
    try:
        _sacrebleu()
    except MissingExtra as missing:
        return str(missing)
    return ""


def _long(references: Iterable[str]) -> bool:
    return any(len(reference.split()) >= NGRAMS for reference in references)


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError:
        raise MissingExtra("scoring by BLEU and chrF", "sacrebleu", "metrics") from None
    return sacrebleu.metrics


def sacrebleu_scores(written: Sequence[str], references: Sequence[str], samples: int = 1000) -> dict[str, Measure]:
    """BLEU and chrF over all sequences, with sacrebleu's own bootstrap."""
    kinds = _sacrebleu()
    metrics: dict[str, Any] = {"bleu": _bleu(kinds.BLEU), "chrf": kinds.CHRF()}
    found = {}
    for name, metric in metrics.items():
        score = metric.corpus_score(list(written), [list(references)])
        interval = _drawn_anew(metric, written, references, samples)
        found[name] = Measure(float(score.score), interval, str(metric.get_signature()))
    return found


def _bleu(kind: Any) -> Any:
    """As sacrebleu has it, but without its warning, at each score, of texts that were taken apart into words before: as
    they are learned they are judged, and the signature says how."""
    return kind(force=True)


def _drawn_anew(metric: Any, written: Sequence[str], references: Sequence[str], samples: int) -> Interval:
    """By sacrebleu's own bootstrap. It mixes kinds of numbers, and stops, where some draws have nothing in common with
    their references: then by a few draws of our own."""
    try:
        score = metric.corpus_score(list(written), [list(references)], n_bootstrap=max(2, samples))
        return max(0.0, float(score._mean - score._ci)), min(100.0, float(score._mean + score._ci))
    except TypeError:
        dice = np.random.default_rng(0)
        draws = [dice.integers(len(written), size=len(written)) for _ in range(min(samples, FEW))]
        scores = [
            metric.corpus_score([written[i] for i in draw], [[references[i] for i in draw]]).score for draw in draws
        ]
        low, high = np.quantile(np.array(scores, dtype=np.float64), [0.025, 0.975])
        return float(low), float(high)


def paired_bleu(first: Sequence[str], second: Sequence[str], references: Sequence[str], samples: int = 1000) -> Paired:
    """Whether the second is better than the first by more than luck: sacrebleu's paired bootstrap (Koehn, 2004)."""
    try:
        from sacrebleu.metrics import BLEU
        from sacrebleu.significance import PairedTest
    except ImportError:
        raise MissingExtra("comparing by BLEU", "sacrebleu", "metrics") from None
    named: Any = [("first", list(first)), ("second", list(second))]
    _, found = PairedTest(named, {"BLEU": _bleu(BLEU)}, [list(references)], test_type="bs", n_samples=samples)()
    scores: Any = next(value for key, value in found.items() if key != "System")
    return Paired(float(scores[0].score), float(scores[1].score), float(scores[1].p_value))


def edit_distance(given: Sequence[Any], wanted: Sequence[Any]) -> int:
    """The fewest insertions, deletions and replacements that make one of the other."""
    names = {unit: number for number, unit in enumerate(dict.fromkeys([*given, *wanted]))}
    units = np.array([names[unit] for unit in wanted], dtype=np.int64)
    places = np.arange(len(units) + 1)
    row = places.copy()  # distances of what was read so far to each beginning of `wanted`
    for unit in given:
        best = np.minimum(row[1:] + 1, row[:-1] + (units != names[unit]))
        row = np.concatenate([[row[0] + 1], best])
        row = np.minimum.accumulate(row - places) + places  # insertions, one after another
    return int(row[-1])


def _error_rate(
    written: Sequence[Sequence[Any]], references: Sequence[Sequence[Any]], samples: int, seed: int
) -> Measure:
    errors = np.array([edit_distance(a, b) for a, b in zip(written, references, strict=True)], dtype=np.float64)
    sizes = np.array([len(reference) for reference in references], dtype=np.float64)
    if not sizes.sum():
        raise DataError("all references are empty: there is nothing to count errors by")
    return Measure(float(errors.sum() / sizes.sum()), bootstrap_interval(errors, sizes, samples=samples, seed=seed))
