"""Gradients through time as pictures: against distance, step by step, and from every token to every answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from elman.errors import ConfigError
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import HeatMap, Lines, Panel
from elman.figures.provenance import carries_call
from elman.inspection.diagnosis import diagnose
from elman.inspection.gradient_decay import LENGTH, WIDTH, GradientDecay, Probe, gradient_decay
from elman.inspection.inspected_text import InspectedText
from elman.inspection.jacobians import StepJacobian, layer_inputs, step_jacobians
from elman.inspection.token_gradients import Connection, by_lag, connect
from elman.ops import taps

FLOOR = 1e-38  # where float32 ends, and a picture that everyone can compare with
STEPWISE = 4  # layers whose single steps are drawn
SQUARE = 60  # tokens up to which the whole matrix is drawn
ASKED = {
    "label": "the log-probability of the verdict on the whole text",
    "tag": "the log-probability of each word's tag",
    "value": "the predicted number",
}


@carries_call
def fading_figure(
    probes: Sequence[Probe], length: int = LENGTH, width: int = WIDTH, seed: int = 0, precision: str = "float32"
) -> Figure:
    """Of untrained layers."""
    found = [gradient_decay(probe, length, width, seed, precision) for probe in probes]
    panels: list[Panel] = [distance_panel(found)]
    if len(probes) <= STEPWISE:
        noise = torch.randn(length, width, generator=torch.Generator().manual_seed(seed))
        steps = {}
        for probe in probes:
            layer = probe.build(width, seed, torch.float32)
            with probe.opening():
                steps[probe.name] = step_jacobians(layer, noise * probe.scale)
        panels += step_panels(steps)
    of = f"untrained, width {width}, {length} steps of unit-normal noise, {precision}, seed {seed}"
    return Figure("How far back a gradient reaches", panels, [diagnose(one).words for one in found], of)


def distance_panel(found: Sequence[GradientDecay]) -> Lines:
    floor = max(FLOOR, min(one.floor for one in found)) if min(one.norms.min() for one in found) < FLOOR else None
    lines = {one.name: (one.lags, one.norms) for one in found}
    return Lines(
        lines,
        "distance in steps",
        "norm of the gradient",
        "y",
        floor if floor is None else max(floor, FLOOR),
        title="Gradient against distance",
    )


def step_panels(steps: dict[str, list[StepJacobian]]) -> list[Panel]:
    lines: dict[str, Any] = {}
    for name, found in steps.items():
        times = np.array([one.time for one in found])
        if found:
            lines[f"{name}: norm"] = (times, np.array([one.norm for one in found]))
            lines[f"{name}: radius"] = (times, np.array([one.radius for one in found]))
    title = "One step of the state: largest growth (norm), growth if repeated (spectral radius)"
    return [Lines(lines, "step", "factor", title=title)] if lines else []


@carries_call
def model_figure(reading: InspectedText, of: str = "", seed: int = 0) -> Figure:
    """Of a trained model while it reads a text."""
    found = connect(reading)
    panels: list[Panel] = []
    notes = []
    aligned = len(reading.main) == len(reading.read) and reading.embedding == "embedding"
    if aligned and len(found.norms) > 1:
        faded = by_lag(found, "this model")
        panels.append(distance_panel([faded]))
        notes.append(diagnose(faded).words)
    if len(found.tokens) <= SQUARE:
        panels.append(connection_panel(found))
    steps = stepwise(reading)
    panels += step_panels(dict(list(steps.items())[:STEPWISE]))
    if not panels:
        raise ConfigError("the text is too long to show every connection; give one of at most 60 tokens")
    asked = ASKED.get(reading.goal, "the log-probability of what came next")
    notes.append(f"Norm of the gradient of {asked}, by the vector of each token.")
    notes += [reading.caution] if reading.caution else []
    return Figure("What each answer depends on", panels, notes, of)


def connection_panel(found: Connection) -> HeatMap:
    largest = found.norms.max() or 1.0
    with np.errstate(divide="ignore"):
        powers = np.log10(found.norms / largest)
    matrix = np.where(found.norms > 0, powers, np.nan)  # what does not depend at all is left grey
    title = "Rows: answers. Columns: tokens they depend on"
    return HeatMap({"": matrix}, found.answers, found.tokens, time="rows", title=title, quantity="gradient")


def stepwise(reading: InspectedText) -> dict[str, list[StepJacobian]]:
    """For each layer of a model that reads from left to right."""
    stack = getattr(reading.model, "stack", None)
    if stack is None:
        return {}
    with inference_mode(reading.model, gradients=True):
        with torch.no_grad(), taps.record(reading.embedding) as seen:
            reading.run(1)
        vectors = seen[reading.embedding].to(next(reading.model.parameters()))  # recordings are float32, on the CPU
        return {name: step_jacobians(layer, x) for name, layer, x in layer_inputs(stack, vectors)}
