"""Memory ribbons: what single units hold while a text is read, where it is kept, cut and written to."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elman.errors import ConfigError
from elman.figures.figure import Figure
from elman.figures.panels import UnitTimelines, as_array
from elman.figures.provenance import carries_call
from elman.inspection import downsampling
from elman.inspection.inspected_text import InspectedText
from elman.inspection.trace import Trace, trace

CARRIED = ("memory", "hidden", "state")  # the first that a layer has is what it remembers by
KEEPING, WRITING = ("gate.forget", "gate.update", "decay"), ("gate.input",)
UNITS = 8  # that are shown of a layer where nobody chose
LAYERS = 4


@carries_call
def unit_timeline_figure(inspected: InspectedText, of: str = "", units: Sequence[int] = (), layer: int | None = None) -> Figure:
    """A band for each unit; without names, of those that change most along the text. Layers are counted from 1."""
    found = trace(inspected, ("*",), of)
    layers = carried_sites(found)
    if not layers:
        raise ConfigError(
            "no layer taps a state of units (memory, hidden or state); elman inspect attention shows where one looks"
        )
    if layer is not None and not 1 <= layer <= len(layers):
        raise ConfigError(f"layer {layer}: {len(layers)} layers carry a state, counted from 1")
    chosen = layers[:LAYERS] if layer is None else [layers[layer - 1]]
    panels = [unit_timelines(found, site, units) for site in chosen]
    notes = [
        "As thick as its value (orange above zero, blue below), cut where it is not kept, a dot where it is written."
    ]
    notes += [told for site in chosen for told in half_life_notes(found, site)]
    notes += downsampling.note(max(len(found[site]) for site in chosen))
    if len(layers) > len(chosen) and layer is None:
        notes.append(f"{len(chosen)} of {len(layers)} layers are shown; choose with --layer.")
    return Figure("What single units remember", panels, notes, of)


def carried_sites(found: Trace) -> list[str]:
    """Of each layer the site that it carries on."""
    by_layer: dict[str, str] = {}
    for kind in CARRIED:
        for site in found:
            layer, _, last = site.rpartition(".")
            if last == kind and found[site].dim() >= 2 and len(found[site]) == len(found.tokens_of(site)):
                by_layer.setdefault(layer, site)
    return sorted(by_layer.values(), key=list(found).index)


def gates(found: Trace, site: str) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """What is kept and what is written of each unit (time, units), where the layer has gates of the state's size."""
    layer, states = site.rpartition(".")[0], _flat(found, site)

    def gate(known: Sequence[str]) -> NDArray[np.float64] | None:
        for name in known:
            if f"{layer}.{name}" in found.data:
                values = _flat(found, f"{layer}.{name}")
                return values if values.shape == states.shape else None
        return None

    keep, write = gate(KEEPING), gate(WRITING)
    coupled = write is None and keep is not None and f"{layer}.candidate" in found.data
    return keep, 1 - keep if coupled and keep is not None else write


def unit_timelines(found: Trace, site: str, units: Sequence[int] = ()) -> UnitTimelines:
    states = _flat(found, site)
    wrong = [unit for unit in units if not 0 <= unit < states.shape[1]]
    if wrong:
        raise ConfigError(f"unit {wrong[0]}: {site} has {states.shape[1]} units, counted from 0")
    shown = list(units) or sorted(np.argsort(-states.std(0))[:UNITS].tolist())
    keep, write = gates(found, site)

    def bands(values: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        return None if values is None else downsampling.means(values[:, shown].T)

    values = bands(states)
    assert values is not None
    tokens = downsampling.names(found.tokens_of(site))
    names = [f"unit {unit}" for unit in shown]
    return UnitTimelines(names, tokens, values, bands(keep), bands(write), title=site, quantity="state")


def half_life_notes(found: Trace, site: str) -> list[str]:
    """In words, after how many steps gates leave half of what a unit held: its mean over the text."""
    keep, _ = gates(found, site)
    if keep is None:
        return []
    steps = half_lives(keep)
    longest = np.argsort(-steps)[:3]
    units = ", ".join(f"{unit} ({_steps(steps[unit])})" for unit in longest.tolist())
    return [
        f"{site}: gates halve what a unit holds in {_steps(float(np.median(steps)))}; units that keep longest: {units}."
    ]


def half_lives(keep: NDArray[np.float64]) -> NDArray[np.float64]:
    """Steps until the product of a unit's gates (time, units) is one half, at their mean pace."""
    with np.errstate(divide="ignore"):
        return np.log(2) / np.abs(np.log(np.clip(keep, 1e-12, 1)).mean(0))


def _steps(count: float) -> str:
    return "more than 1,000 steps" if count > 1000 else f"{count:.1f} steps"


def _flat(found: Trace, site: str) -> NDArray[np.float64]:
    return as_array(found[site].reshape(len(found[site]), -1))
