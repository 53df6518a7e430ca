"""Units that mean something: how long each remembers, and which follow what annotators tell, on held-out text.

A unit's score is the squared correlation with an annotation on the half of the text that did not choose it. Beside it
stands the best score of the same units for annotations moved against the text: what chance gives to the luckiest unit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elman.errors import ConfigError, UnknownName
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Bars, ColouredText, Lines, Panel, as_array
from elman.figures.provenance import carries_call
from elman.inspection.annotators import ANNOTATORS
from elman.inspection.inspected_text import InspectedText
from elman.ops import taps

CARRIED = ("hidden", "memory", "state")
SHUFFLES = 20
LAGS = 100
LEAST = 20  # tokens of each half with an opinion, and of each side of it, under which a score says little
SHOWN = 60  # tokens of the coloured text
REMEMBERED = 1 / np.e


class UnitScore(NamedTuple):
    annotator: str
    site: str
    unit: int
    score: float
    """Share of the annotation's variance that the unit explains, on held-out text."""
    chance: float
    """The same for the luckiest unit when the annotation is moved against the text."""
    rising: bool
    """Whether the unit grows with it."""


class Activity(NamedTuple):
    tokens: list[str]
    sites: dict[str, NDArray[np.float64]]  # name -> (time, units)


def activity(inspected: InspectedText, sites: Sequence[str] = ()) -> Activity:
    """States while a text is read; by themselves those that are carried: hidden, memory, state."""
    with inference_mode(inspected.model), taps.record(*(sites or ("*",))) as seen:
        inspected.run(1)
    names = [site for site in seen if sites or site.rpartition(".")[2] in CARRIED]
    names = [site for site in names if inspected.tokens_of(site) == inspected.main and seen[site].shape[0] == 1]
    if not names:
        raise ConfigError("no layer taps a state of units (memory, hidden or state); name others with --sites")
    return Activity(inspected.main, {site: _flat(seen[site][0]) for site in names})


def _flat(values: Tensor) -> NDArray[np.float64]:
    return as_array(values.reshape(len(values), -1))


def correlations(states: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every unit (time, units) with a row of numbers; 0 where either does not move."""
    x, y = states - states.mean(0), wanted - wanted.mean()
    sizes = np.sqrt((x**2).sum(0) * (y**2).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sizes > 1e-12, (x * y[:, None]).sum(0) / sizes, 0.0)


def rank_units(found: Activity, annotators: Sequence[str] = (), seed: int = 0) -> list[UnitScore]:
    """The best unit of each site for each annotator that has something to say about the text, best first."""
    unknown = [name for name in annotators if name not in ANNOTATORS]
    if unknown:
        raise UnknownName("annotator", unknown[0], ANNOTATORS)
    half = len(found.tokens) // 2
    scores = []
    for name in annotators or ANNOTATORS:
        wanted = ANNOTATORS[name](found.tokens)
        known = np.isfinite(wanted)
        parts = known & (np.arange(len(known)) < half), known & (np.arange(len(known)) >= half)
        if any(part.sum() < LEAST or not _moves(wanted[part]) for part in parts):
            continue
        scores += [_best(name, site, states, wanted, *parts, seed) for site, states in found.sites.items()]
    return sorted(scores, key=lambda one: one.chance - one.score)


def _best(
    name: str,
    site: str,
    states: NDArray[np.float64],
    wanted: NDArray[np.float64],
    choosing: NDArray[np.bool_],
    held: NDArray[np.bool_],
    seed: int,
) -> UnitScore:
    """Chosen on one half, scored on the other; chance likewise, with annotations moved round the text."""

    def score(annotation: NDArray[np.float64]) -> tuple[int, float]:
        unit = int(np.abs(correlations(states[choosing], annotation[choosing])).argmax())
        return unit, float(correlations(states[held][:, unit : unit + 1], annotation[held])[0])

    unit, found = score(wanted)
    dice = np.random.default_rng(seed)
    lucky = []
    for _ in range(SHUFFLES):
        moved = np.full_like(wanted, np.nan)
        for part in (choosing, held):
            moved[part] = np.roll(wanted[part], int(dice.integers(len(wanted[part]) // 4, 1 + 3 * part.sum() // 4)))
        lucky.append(score(moved)[1] ** 2)
    return UnitScore(name, site, unit, found**2, float(np.max(lucky)), found > 0)


def _moves(values: NDArray[np.float64]) -> bool:
    """Whether there is enough on both sides of the middle for a correlation to mean something."""
    middle = (values.min() + values.max()) / 2
    return min((values > middle).sum(), (values <= middle).sum()) >= LEAST


def autocorrelation_times(states: NDArray[np.float64], lags: int = LAGS) -> NDArray[np.int64]:
    """For each unit the steps after which it is like itself by less than 1/e; the last lag where it never is."""
    lags = min(lags, len(states) // 4)
    moved = states - states.mean(0)
    own = (moved**2).mean(0)
    found = np.full(states.shape[1], lags)
    for lag in range(lags, 0, -1):
        with np.errstate(divide="ignore", invalid="ignore"):
            like = np.where(own > 1e-12, (moved[lag:] * moved[:-lag]).mean(0) / own, 0.0)
        found = np.where(like < REMEMBERED, lag, found)
    return found


@carries_call
def unit_figure(
    inspected: InspectedText, of: str = "", sites: Sequence[str] = (), annotators: Sequence[str] = ()
) -> Figure:
    """Horizons of all units, the ranked list, and the text coloured by the best unit."""
    found = activity(inspected, sites)
    if len(found.tokens) < 4 * LEAST:
        raise ConfigError(f"{len(found.tokens)} tokens are too few to judge units by; give at least {4 * LEAST}")
    scores = rank_units(found, annotators)
    panels: list[Panel] = [autocorrelation_panel(found), unit_panel(found)]
    notes = []
    for site, states in found.sites.items():
        steps = autocorrelation_times(states)
        notes.append(
            f"{site}: half of its {states.shape[1]} units remember {np.median(steps):.0f} steps or more, the "
            f"longest (unit {int(steps.argmax())}) {int(steps.max())}."
        )
    if scores:
        shown = scores[:12]
        names = [f"{one.annotator}, {one.site} {one.unit}" for one in shown]
        bars = {
            "held-out": as_array([one.score for one in shown]),
            "luckiest by chance": as_array([one.chance for one in shown]),
        }
        panels.append(Bars(names, bars, "variance explained", (0, 1), title="Units that follow something"))
        best = scores[0]
        values = found.sites[best.site][:, best.unit]
        title = f"The text coloured by unit {best.unit} of {best.site} ({best.annotator})"
        panels.append(ColouredText(found.tokens[:SHOWN], values[:SHOWN], title=title, quantity="state"))
        notes += [told(one) for one in scores[:5]]
    else:
        notes.append("No annotator has enough to say about this text.")
    return Figure("What single units remember and follow", panels, notes, of)


def told(one: UnitScore) -> str:
    follows = "follows" if one.score > max(2 * one.chance, one.chance + 0.05) else "does not clearly follow"
    return (
        f"Unit {one.unit} of {one.site} {follows} {one.annotator}: it explains {one.score:.0%} of it on held-out text, "
        f"the luckiest unit by chance {one.chance:.0%}."
    )


def autocorrelation_panel(found: Activity) -> Lines:
    lines = {}
    for site, states in found.sites.items():
        steps = np.sort(autocorrelation_times(states))[::-1]
        lines[site] = (np.linspace(0, 100, len(steps)), steps.astype(float))
    title = "How long units remember: steps until one is no longer like itself"
    return Lines(lines, "percent of units", "steps", title=title)


def unit_panel(found: Activity) -> Lines:
    """The same by unit, so that a number of the picture or the table has its name."""
    steps = {site: autocorrelation_times(states) for site, states in found.sites.items()}
    lines = {site: (np.arange(len(one)), one.astype(float)) for site, one in steps.items()}
    return Lines(lines, "unit", "steps", title="How long each unit remembers")
