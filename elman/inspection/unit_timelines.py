"""Timelines of single memory units along a text, with the gates that keep and write them, and their half-lives."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elman.errors import ConfigError
from elman.figures.figure import Figure
from elman.figures.panels import UnitTimelines
from elman.figures.provenance import carries_call
from elman.inspection import downsampling
from elman.inspection.inspected_text import InspectedText
from elman.inspection.trace import Trace, choose_layers, trace

STATES = ("memory", "hidden", "state")  # the first that a layer has is its recurrent state
KEEP_GATES, WRITE_GATES = ("gate.forget", "gate.update", "decay"), ("gate.input",)
UNITS = 8  # of a layer, shown by default


@carries_call
def unit_timeline_figure(
    inspected: InspectedText, subtitle: str = "", units: Sequence[int] = (), layer: int | None = None
) -> Figure:
    """By default the units with the largest variance. Layers are counted from 1."""
    found = trace(inspected, ("*",), subtitle)
    sites = state_sites(found)
    if not sites:
        raise ConfigError(
            "no layer taps a state of units (memory, hidden or state); elman inspect attention shows attention weights"
        )
    chosen, left_out = choose_layers(sites, layer, "carry a state")
    panels = [unit_timelines(found, site, units) for site in chosen]
    notes = ["Thickness: absolute value, orange positive, blue negative. Gap: forget gate. Dot: input gate."]
    notes += [note for site in chosen for note in half_life_notes(found, site)]
    notes += downsampling.note(max(len(found[site]) for site in chosen))
    notes += left_out
    return Figure("Memory of single units", panels, notes, subtitle)


def state_sites(found: Trace) -> list[str]:
    """The site of the recurrent state of each layer."""
    by_layer: dict[str, str] = {}
    for name in STATES:
        for site in found:
            layer, _, last = site.rpartition(".")
            if last == name and found[site].dim() >= 2 and len(found[site]) == len(found.tokens_of(site)):
                by_layer.setdefault(layer, site)
    return sorted(by_layer.values(), key=list(found).index)


def gates(found: Trace, site: str) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Keep and write gates (time, units) of a state, where the layer has gates of the same size.

    A layer with one gate for both (GRU, coupled LSTM) writes what it does not keep.
    """
    layer, states = site.rpartition(".")[0], found.units(site)

    def gate(names: Sequence[str]) -> NDArray[np.float64] | None:
        values = next((found.units(f"{layer}.{name}") for name in names if f"{layer}.{name}" in found.data), None)
        return values if values is not None and values.shape == states.shape else None

    keep, write = gate(KEEP_GATES), gate(WRITE_GATES)
    coupled = write is None and keep is not None and f"{layer}.candidate" in found.data
    return keep, 1 - keep if coupled and keep is not None else write


def unit_timelines(found: Trace, site: str, units: Sequence[int] = ()) -> UnitTimelines:
    states = found.units(site)
    wrong = [unit for unit in units if not 0 <= unit < states.shape[1]]
    if wrong:
        raise ConfigError(f"unit {wrong[0]}: {site} has {states.shape[1]} units, counted from 0")
    shown = list(units) or sorted(np.argsort(-states.std(0))[:UNITS].tolist())

    def rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return downsampling.means(values[:, shown].T)

    keep, write = (None if gate is None else rows(gate) for gate in gates(found, site))
    tokens = downsampling.names(found.tokens_of(site))
    names = [f"unit {unit}" for unit in shown]
    return UnitTimelines(names, tokens, rows(states), keep, write, title=site, quantity="state")


def half_life_notes(found: Trace, site: str) -> list[str]:
    """The median half-life, and the units with the longest."""
    keep, _ = gates(found, site)
    if keep is None:
        return []
    steps = half_lives(keep)
    longest = np.argsort(-steps)[:3]
    units = ", ".join(f"{unit} ({_steps(steps[unit])})" for unit in longest.tolist())
    return [f"{site}: median half-life {_steps(float(np.median(steps)))}; longest: units {units}."]


def half_lives(keep: NDArray[np.float64]) -> NDArray[np.float64]:
    """Steps until the product of a unit's keep gates (time, units) is one half, at their geometric mean."""
    with np.errstate(divide="ignore"):
        return np.log(2) / np.abs(np.log(np.clip(keep, 1e-12, 1)).mean(0))


def _steps(count: float) -> str:
    return "more than 1,000 steps" if count > 1000 else f"{count:.1f} steps"
