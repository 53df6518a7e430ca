"""Probing of single units: the autocorrelation time of each, and which ones follow an annotation on held-out text.

The score of a unit is its squared correlation with an annotation on the half of the text that did not select it. The
baseline is the best score of the same selection for annotations shifted against the text: multiple comparisons alone.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.errors import ConfigError, UnknownName
from elman.figures.figure import Figure
from elman.figures.panels import Bars, ColouredText, Lines, Panel, as_array
from elman.figures.provenance import carries_call
from elman.inspection.annotators import ANNOTATORS
from elman.inspection.inspected_text import InspectedText

STATES = ("hidden", "memory", "state")
SHIFTS = 20
LAGS = 100
LEAST = 20  # annotated tokens of each half, and on each side of their middle, below which a score means little
SHOWN = 60  # tokens of the coloured text
DECAYED = 1 / np.e  # autocorrelation at the autocorrelation time


class UnitScore(NamedTuple):
    annotator: str
    site: str
    unit: int
    score: float  # variance of the annotation that the unit explains (r²), on held-out text
    chance: float  # the same for the best of the shifted annotations
    rising: bool  # whether the correlation is positive


class Activity(NamedTuple):
    tokens: list[str]
    sites: dict[str, NDArray[np.float64]]  # name -> (time, units)


def activity(inspected: InspectedText, sites: Sequence[str] = ()) -> Activity:
    """Recorded values while a text is read; by default of the recurrent states."""
    seen = inspected.record(*(sites or ("*",)))
    names = [site for site in seen if sites or site.rpartition(".")[2] in STATES]
    names = [site for site in names if inspected.tokens_of(site) == inspected.main and seen[site].shape[0] == 1]
    if not names:
        raise ConfigError("no layer taps a state of units (memory, hidden or state); name others with --sites")
    return Activity(inspected.main, {site: as_array(seen[site][0].flatten(1)) for site in names})


def correlations(states: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _best(
    name: str,
    site: str,
    states: NDArray[np.float64],
    target: NDArray[np.float64],
    selection: NDArray[np.bool_],
    heldout: NDArray[np.bool_],
    seed: int,
) -> UnitScore:
    """Selected on one half and scored on the other; the baseline likewise, with circularly shifted annotations."""

    def score(annotation: NDArray[np.float64]) -> tuple[int, float]:
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


def _varies(values: NDArray[np.float64]) -> bool:
    """Whether enough values lie on both sides of the middle for a correlation to mean something."""
    middle = (values.min() + values.max()) / 2
    return min((values > middle).sum(), (values <= middle).sum()) >= LEAST


def autocorrelation_times(states: NDArray[np.float64], lags: int = LAGS) -> NDArray[np.int64]:
    """For each unit the first lag with an autocorrelation below 1/e; the largest lag where there is none."""
    lags = min(lags, len(states) // 4)
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
) -> Figure:
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
    return Figure("Probing of single units", panels, notes, subtitle)


def summary(one: UnitScore) -> str:
    follows = "follows" if one.score > max(2 * one.chance, one.chance + 0.05) else "does not clearly follow"
    return (
        f"Unit {one.unit} of {one.site} {follows} {one.annotator}: it explains {one.score:.0%} of the variance on "
        f"held-out text, the shifted baseline {one.chance:.0%}."
    )


def autocorrelation_panels(times: Mapping[str, NDArray[np.int64]]) -> list[Panel]:
    """Autocorrelation times of the units of each site, sorted and by number."""
    ordered = {site: (np.linspace(0, 100, len(steps)), np.sort(steps)[::-1]) for site, steps in times.items()}
    by_unit = {site: (range(len(steps)), steps) for site, steps in times.items()}
    return [
        Lines(ordered, "percent of units", "steps", title="Autocorrelation time, units sorted"),
        Lines(by_unit, "unit", "steps", title="Autocorrelation time by unit"),
    ]
