"""Probing of single units: the autocorrelation time of each, and which ones follow an annotation on held-out text.

The score of a unit is its squared correlation with an annotation on the half of the text that did not select it. The
baseline is the best score of the same selection for annotations shifted against the text: multiple comparisons alone.
An annotator gives every token a number from the text up to it, or NaN where it does not apply: quotes, brackets, the
position in a line or word, the number of the subject.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from elman.corpus.synthetic import END, make_language
from elman.corpus.synthetic.formal import CLOSING, OPENING
from elman.errors import ConfigError, UnknownName
from elman.figures.panels import Array, Bars, ColouredText, Lines, Panel, as_array
from elman.figures.provenance import carries_call
from elman.inspection.inspected_text import InspectedText
from elman.inspection.result import Inspection, Numbers

STATES = ("hidden", "memory", "state")
SHIFTS = 20
LAGS = 100
LEAST = 20  # annotated tokens of each half, and on each side of their middle, below which a score means little
SHOWN = 60  # tokens of the coloured text
DECAYED = 1 / np.e  # autocorrelation at the autocorrelation time
QUOTES = '"“”„«»'


def inside_quotes(tokens: Sequence[str]) -> Array:
    """1 between quotation marks; the end of a line closes all quotes."""
    open_, found = False, []
    for token in tokens:
        open_ ^= sum(char in QUOTES for char in token) % 2 == 1
        open_ = open_ and "\n" not in token and token != END
        found.append(float(open_))
    return np.array(found)


def bracket_depth(tokens: Sequence[str]) -> Array:
    """Number of open brackets."""
    depth, found = 0, []
    for token in tokens:
        for char in token:
            depth = max(0, depth + (char in OPENING) - (char in CLOSING))
        depth = 0 if token == END else depth
        found.append(float(depth))
    return np.array(found)


def position_in_line(tokens: Sequence[str]) -> Array:
    """Tokens since the start of the line or text."""
    return _tokens_since(["\n" in token or token == END for token in tokens])


def position_in_word(tokens: Sequence[str]) -> Array:
    """Characters since the last space, where spaces are tokens."""
    if not any(token.isspace() for token in tokens):
        return np.full(len(tokens), np.nan)
    return _tokens_since([token.isspace() or token == END for token in tokens])


def _tokens_since(starts: Sequence[bool]) -> Array:
    """0 at each start, and from there on one more at each token; the first token follows a start."""
    counts = accumulate(starts, lambda count, start: 0 if start else count + 1, initial=0)
    return np.array([*counts][1:], dtype=np.float64)


def subject_number(tokens: Sequence[str]) -> Array:
    """In the synthetic agreement language: 1 for a plural subject, 0 for a singular one, until its verb."""
    language: Any = make_language({"type": "agreement"})
    number: float = np.nan
    found: list[float] = []
    state: Any = language.start
    for token in tokens:
        if token == END:
            state, number = language.start, np.nan
        elif state is not None:
            after = {word: next_state for word, chance, next_state in language.transitions(state) if chance > 0}
            role, state = getattr(state, "role", ""), after.get(token)
            if state is None:
                number = np.nan  # not a sentence of this language
            elif role == "subject" and token in language.number:
                number = float(language.number[token])
            elif state.stage in ("predicate", "close", "finish") or state.role == "object":
                number = np.nan
        found.append(number)
    return np.array(found)


ANNOTATORS: dict[str, Callable[[Sequence[str]], Array]] = {
    "inside quotes": inside_quotes,
    "bracket depth": bracket_depth,
    "place in line": position_in_line,
    "place in word": position_in_word,
    "subject number": subject_number,
}


class UnitScore(NamedTuple):
    annotator: str
    site: str
    unit: int
    score: float  # variance of the annotation that the unit explains (r²), on held-out text
    chance: float  # the same for the best of the shifted annotations
    rising: bool  # whether the correlation is positive


class Activity(NamedTuple):
    tokens: list[str]
    sites: dict[str, Array]  # name -> (time, units)


def activity(inspected: InspectedText, sites: Sequence[str] = ()) -> Activity:
    """Recorded values while a text is read; by default of the recurrent states."""
    seen = inspected.record(*(sites or ("*",)))
    names = [site for site in seen if sites or site.rpartition(".")[2] in STATES]
    names = [site for site in names if inspected.tokens_of(site) == inspected.main and seen[site].shape[0] == 1]
    if not names:
        raise ConfigError("no layer taps a state of units (memory, hidden or state); name others with --sites")
    return Activity(inspected.main, {site: as_array(seen[site][0].flatten(1)) for site in names})


def correlations(states: Array, target: Array) -> Array:
    """Pearson's r of every unit (time, units) with a series; 0 where either is constant."""
    x, y = states - states.mean(0), target - target.mean()
    sizes = np.sqrt((x**2).sum(0) * (y**2).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sizes > 1e-12, (x * y[:, None]).sum(0) / sizes, 0.0)


def rank_units(found: Activity, annotators: Sequence[str] = (), seed: int = 0) -> list[UnitScore]:
    """The best unit of each site for each annotator that annotates enough of the text, best first."""
    unknown = [name for name in annotators if name not in ANNOTATORS]
    if unknown:
        raise UnknownName("annotator", unknown[0], ANNOTATORS)
    half = len(found.tokens) // 2
    scores = []
    for name in annotators or ANNOTATORS:
        target = ANNOTATORS[name](found.tokens)
        known = np.isfinite(target)
        parts = known & (np.arange(len(known)) < half), known & (np.arange(len(known)) >= half)
        if any(part.sum() < LEAST or not _varies(target[part]) for part in parts):
            continue
        scores += [_best(name, site, states, target, *parts, seed) for site, states in found.sites.items()]
    return sorted(scores, key=lambda one: one.chance - one.score)


def _best(name: str, site: str, states: Array, target: Array, selection: Array, heldout: Array, seed: int) -> UnitScore:
    """Selected on one half and scored on the other; the baseline likewise, with circularly shifted annotations."""

    def score(annotation: Array) -> tuple[int, float]:
        unit = int(np.abs(correlations(states[selection], annotation[selection])).argmax())
        return unit, float(correlations(states[heldout][:, unit : unit + 1], annotation[heldout])[0])

    unit, r = score(target)
    rng = np.random.default_rng(seed)
    baseline = []
    for _ in range(SHIFTS):
        shifted = np.full_like(target, np.nan)
        for part in (selection, heldout):
            shifted[part] = np.roll(target[part], int(rng.integers(len(target[part]) // 4, 1 + 3 * part.sum() // 4)))
        baseline.append(score(shifted)[1] ** 2)
    return UnitScore(name, site, unit, r**2, float(np.max(baseline)), r > 0)


def _varies(values: Array) -> bool:
    """Whether enough values lie on both sides of the middle for a correlation to mean something."""
    middle = (values.min() + values.max()) / 2
    return min((values > middle).sum(), (values <= middle).sum()) >= LEAST


def autocorrelation_times(states: Array) -> Array:
    """For each unit the first lag with an autocorrelation below 1/e; the largest lag where there is none."""
    lags = min(LAGS, len(states) // 4)
    centred = states - states.mean(0)
    variance = (centred**2).mean(0)
    found = np.full(states.shape[1], lags)
    for lag in range(lags, 0, -1):
        with np.errstate(divide="ignore", invalid="ignore"):
            r = np.where(variance > 1e-12, (centred[lag:] * centred[:-lag]).mean(0) / variance, 0.0)
        found = np.where(r < DECAYED, lag, found)
    return found


@carries_call
def unit_figure(
    inspected: InspectedText, subtitle: str = "", sites: Sequence[str] = (), annotators: Sequence[str] = ()
) -> Inspection:
    """Autocorrelation times of all units, the best units for each annotator, and the text coloured by the best."""
    found = activity(inspected, sites)
    if len(found.tokens) < 4 * LEAST:
        raise ConfigError(f"{len(found.tokens)} tokens are too few to score units; give at least {4 * LEAST}")
    scores = rank_units(found, annotators)
    times = {site: autocorrelation_times(states) for site, states in found.sites.items()}
    panels = autocorrelation_panels(times)
    notes = [
        f"{site}: median autocorrelation time of its {len(steps)} units {np.median(steps):.0f} steps, the longest "
        f"(unit {int(steps.argmax())}) {int(steps.max())}."
        for site, steps in times.items()
    ]
    if scores:
        shown = scores[:12]
        names = [f"{one.annotator}, {one.site} {one.unit}" for one in shown]
        bars = {"held-out": [one.score for one in shown], "shifted baseline": [one.chance for one in shown]}
        panels.append(Bars(names, bars, "variance explained", (0, 1), title="Best units for each annotation"))
        best = scores[0]
        values = found.sites[best.site][:, best.unit]
        title = f"Activation of unit {best.unit} of {best.site} ({best.annotator})"
        panels.append(ColouredText(found.tokens[:SHOWN], values[:SHOWN], title=title, quantity="state"))
        notes += [summary(one) for one in scores[:5]]
    else:
        notes.append("No annotator has enough annotations of this text.")
    return Inspection("Probing of single units", panels, notes, subtitle, numbers=unit_numbers(found, scores, times))


def unit_numbers(found: Activity, scores: Sequence[UnitScore], times: Mapping[str, Array]) -> dict[str, Numbers]:
    """The activity of all units, their autocorrelation times, and the score of the best for each annotator."""
    numbers = {
        site: Numbers.of(states, token=found.tokens, unit=range(states.shape[1]))
        for site, states in found.sites.items()
    }
    for site, steps in times.items():
        numbers[f"{site}.autocorrelation_time"] = Numbers.of(steps, unit=range(len(steps)))
    if scores:
        axes = {"candidate": range(1, 1 + len(scores))}
        columns = dict(zip(UnitScore._fields, zip(*scores, strict=True), strict=True))
        texts = ("annotator", "site")
        numbers |= {name: Numbers([*columns[name]], axes) for name in texts}
        numbers |= {name: Numbers.of(columns[name], **axes) for name in ("unit", "score", "chance")}
    return numbers


def summary(one: UnitScore) -> str:
    follows = "follows" if one.score > max(2 * one.chance, one.chance + 0.05) else "does not clearly follow"
    return (
        f"Unit {one.unit} of {one.site} {follows} {one.annotator}: it explains {one.score:.0%} of the variance on "
        f"held-out text, the shifted baseline {one.chance:.0%}."
    )


def autocorrelation_panels(times: Mapping[str, Array]) -> list[Panel]:
    """Autocorrelation times of the units of each site, sorted and by number."""
    ordered = {site: (np.linspace(0, 100, len(steps)), np.sort(steps)[::-1]) for site, steps in times.items()}
    by_unit = {site: (range(len(steps)), steps) for site, steps in times.items()}
    return [
        Lines(ordered, "percent of units", "steps", title="Autocorrelation time, units sorted"),
        Lines(by_unit, "unit", "steps", title="Autocorrelation time by unit"),
    ]
