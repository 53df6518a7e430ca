"""Figures of gradients through time: norm against distance, Jacobians of single steps, predictions against tokens.

Gradients through time are products of the Jacobians of single steps, d(state after) / d(state before). With spectral
norms below one every product shrinks; with a spectral radius above one products can grow, unless the nonlinearity
saturates (Pascanu et al., 2013).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.errors import ConfigError
from elman.evaluation.inference_mode import inference_mode
from elman.figures.panels import Curve, HeatMap, Lines, Panel
from elman.figures.provenance import carries_call
from elman.inspection.gradient_decay import LENGTH, WIDTH, GradientDecay, UntrainedLayer, diagnose, gradient_decay
from elman.inspection.inspected_text import InspectedText
from elman.inspection.result import Inspection, Numbers
from elman.inspection.token_gradients import TokenGradients, mean_by_lag, token_gradients
from elman.layers import SequenceLayer
from elman.ops.state import map_state, tensors
from elman.shapes import State

FLOOR = 1e-38  # about the smallest normal float32, also in figures of float64, so that they compare
LARGEST = 1024  # elements of a state up to which its Jacobian is computed
STEPS = 40  # evenly spaced steps whose Jacobians are analysed
STEPWISE = 4  # layers whose step Jacobians are shown
SQUARE = 60  # tokens up to which the whole matrix is shown
OBJECTIVES = {
    "label": "the log-probability of the class of the whole text",
    "tag": "the log-probability of the tag of each word",
    "value": "the predicted number",
}


class StepJacobian(NamedTuple):
    time: int
    norm: float  # largest singular value: growth of a small change in one step, at most
    radius: float  # largest modulus of an eigenvalue: growth per step if the step is repeated


@carries_call
def gradient_decay_figure(
    layers: Sequence[UntrainedLayer],
    length: int = LENGTH,
    width: int = WIDTH,
    seed: int = 0,
    precision: str = "float32",
) -> Inspection:
    """Of untrained layers."""
    found = [gradient_decay(untrained, length, width, seed, precision) for untrained in layers]
    panels: list[Panel] = [decay_panel(found)]
    if len(layers) > STEPWISE:
        panels = [replace(panels[0], title="")]  # a single panel has the title of the figure
    else:
        noise = torch.randn(length, width, generator=torch.Generator().manual_seed(seed))
        steps = {}
        for untrained in layers:
            layer = untrained.build(width, seed, torch.float32)
            with untrained.with_open_gates():
                steps[untrained.name] = step_jacobians(layer, noise * untrained.scale)
        panels += jacobian_panels(steps)
    subtitle = f"untrained, width {width}, {length} steps of unit-normal noise, {precision}, seed {seed}"
    names, diagnoses = [one.name for one in found], [diagnose(one) for one in found]
    numbers = {
        "gradient": Numbers.of(np.stack([one.norms for one in found]), layer=names, distance=range(length)),
        "factor": Numbers.of([one.rate for one in diagnoses], layer=names),
        "verdict": Numbers([one.verdict for one in diagnoses], {"layer": names}),
    }
    notes = [one.words for one in diagnoses]
    return Inspection("Gradient norm against distance", panels, notes, subtitle, numbers=numbers)


def decay_panel(found: Sequence[GradientDecay]) -> Lines:
    floor = max(FLOOR, min(one.floor for one in found)) if min(one.norms.min() for one in found) < FLOOR else None
    lines = {one.name: (one.lags, one.norms) for one in found}
    return Lines(lines, "distance in steps", "norm of the gradient", "y", floor, title="Gradient against distance")


def jacobian_panels(steps: dict[str, list[StepJacobian]]) -> list[Panel]:
    lines: dict[str, Curve] = {}
    for name, found in steps.items():
        if found:
            times, norms, radii = zip(*found, strict=True)
            lines |= {f"{name}: norm": (times, norms), f"{name}: radius": (times, radii)}
    title = "Jacobian of one step of the state: spectral norm and spectral radius"
    return [Lines(lines, "step", "factor", title=title)] if lines else []


@carries_call
def gradient_figure(inspected: InspectedText, subtitle: str = "") -> Inspection:
    """Of a trained model that reads a text."""
    found = token_gradients(inspected)
    panels: list[Panel] = []
    notes = []
    numbers = {"gradient": Numbers.of(found.norms, prediction=found.targets, token=found.tokens)}
    aligned = len(inspected.main) == len(inspected.read) and inspected.embedding == "embedding"
    if aligned and len(found.norms) > 1:
        decay = mean_by_lag(found, "this model")
        panels.append(decay_panel([decay]))
        numbers["by distance"] = Numbers.of(decay.norms, distance=decay.lags.tolist())
        notes.append(diagnose(decay).words)
    if len(found.tokens) <= SQUARE:
        panels.append(token_gradient_panel(found))
    jacobians = model_jacobians(inspected)
    panels += jacobian_panels(dict(list(jacobians.items())[:STEPWISE]))
    for name, steps in jacobians.items():
        if steps:
            times, *factors = zip(*steps, strict=True)
            for factor, values in zip(("norm", "radius"), factors, strict=True):
                numbers[f"{name}.jacobian.{factor}"] = Numbers.of(values, step=times)
    if not panels:
        raise ConfigError(f"the text is too long for the matrix of gradients; give one of at most {SQUARE} tokens")
    objective = OBJECTIVES.get(inspected.goal, "the log-probability of the observed next token")
    notes.append(f"Norm of the gradient of {objective}, by the embedding of each token.")
    notes += [inspected.caution] if inspected.caution else []
    return Inspection("Gradients of predictions by tokens", panels, notes, subtitle, numbers=numbers)


def token_gradient_panel(found: TokenGradients) -> HeatMap:
    largest = found.norms.max() or 1.0
    with np.errstate(divide="ignore"):
        powers = np.log10(found.norms / largest)
    matrix = np.where(found.norms > 0, powers, np.nan)  # an exact zero, no dependence, stays grey
    title = "Predictions (rows) by tokens (columns)"
    return HeatMap({"": matrix}, found.targets, found.tokens, time="rows", title=title, quantity="gradient")


def model_jacobians(inspected: InspectedText) -> dict[str, list[StepJacobian]]:
    """By layer, for each causal layer of the stack."""
    stack = getattr(inspected.model, "stack", None)
    if stack is None:
        return {}
    vectors = inspected.record(inspected.embedding)[inspected.embedding]
    with inference_mode(inspected.model, gradients=True):
        vectors = vectors.to(next(inspected.model.parameters()), copy=True)  # recorded as float32 on the CPU
        return {name: step_jacobians(layer, x) for name, layer, x in layer_inputs(stack, vectors)}


def step_jacobians(layer: SequenceLayer, x: Tensor) -> list[StepJacobian]:
    """Along one sequence (time, width); empty for states of more than 1,024 elements, or of integers."""
    state = layer.initial_state(1)
    if not has_vector_state(state):
        return []
    every = max(1, len(x) // STEPS)
    found = []
    for time, token in enumerate(x.detach()):
        if time % every == every - 1:
            matrix = jacobian(layer, token, state)
            values = torch.linalg.svdvals(matrix), torch.linalg.eigvals(matrix).abs()
            found.append(StepJacobian(time, *(float(part.max()) for part in values)))
        with torch.no_grad():
            _, state = layer.step(token.unsqueeze(0), state)
    return found


def has_vector_state(state: State) -> bool:
    parts = [part for _, part in tensors(state)]
    whole = sum(part[0].numel() for part in parts)
    return 0 < whole <= LARGEST and all(part.is_floating_point() for part in parts)


def jacobian(layer: SequenceLayer, token: Tensor, state: State) -> Tensor:
    """As one matrix by a single backward pass: the batch has a copy of the state for each of its elements."""
    size = flat(state).shape[1]
    leaf_state = map_state(lambda part: part.detach().expand(size, *part.shape[1:]).clone().requires_grad_(), state)
    with torch.enable_grad():
        _, after = layer.step(token.expand(size, -1), leaf_state)
        own = flat(after).diagonal().sum()  # element i of copy i
        leaves = [part for _, part in tensors(leaf_state)]
        found = torch.autograd.grad(own, leaves, allow_unused=True)
    parts = [torch.zeros_like(leaf) if part is None else part for part, leaf in zip(found, leaves, strict=True)]
    return torch.cat([part.flatten(1) for part in parts], 1)


def flat(state: State) -> Tensor:
    return torch.cat([part.flatten(1) for _, part in tensors(state)], 1)


def layer_inputs(stack: Any, x: Tensor) -> Iterator[tuple[str, SequenceLayer, Tensor]]:
    """Name, layer and input of each causal layer of a stack, up to a bidirectional one, for embeddings."""
    inputs: list[Tensor] = []
    blocks = list(takewhile(lambda block: block.layer.causal, stack.blocks()))
    hooks = [block.layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0][0])) for block in blocks]
    with torch.no_grad():
        stack(x)
    for index, (block, hook) in enumerate(zip(blocks, hooks, strict=True)):
        hook.remove()
        yield f"layers.{index}.{block.kind}", block.layer, inputs[index]
