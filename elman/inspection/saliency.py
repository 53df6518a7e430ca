"""Saliency: which tokens a prediction depends on, by gradient × input and by leave-one-out ablation.

The gradient is the effect of a small change, ablation that of removing a token. They often disagree; trust what both
say.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.evaluation.inference_mode import inference_mode
from elman.figures.panels import Bars
from elman.inspection.inspected_text import InspectedText
from elman.inspection.token_gradients import target_log_probabilities
from elman.ops import taps

LIMIT = 256  # tokens that are ablated one by one; of a longer text the last ones


class Saliency(NamedTuple):
    """Attribution of a log-probability to each token, in nats; negative for tokens that lower it."""

    tokens: list[str]
    gradient: NDArray[np.float64]  # gradient × embedding, summed over its units
    occlusion: NDArray[np.float64]  # log-probability minus that with the embedding of the token set to zero
    first: int


def saliency(inspected: InspectedText, position: int = -1, outcome: int | None = None) -> Saliency:
    """Of the outcome at a position; by default the observed one, or else the most likely."""
    size = len(inspected.read)
    first = max(0, size - LIMIT)
    leaves: list[Tensor] = []

    def as_leaf(value: Tensor) -> Tensor:
        leaves.append(value.detach().requires_grad_())
        return leaves[-1]

    def ablate(value: Tensor) -> Tensor:
        """Copy i of the text is without token first + i."""
        value = value.clone()
        for copy, token in enumerate(range(first, size)):
            value[copy, token] = 0
        return value

    with inference_mode(inspected.model, gradients=True):
        with taps.edit({inspected.embedding: as_leaf}):
            scores = inspected.run(1)
        outcome = target_outcome(inspected, scores, position) if outcome is None else outcome
        objective = target_log_probabilities(inspected, scores, outcome)[0, position]
        (gradient,) = torch.autograd.grad(objective, leaves[0])
        products = (gradient * leaves[0]).sum(-1)[0, first:size].detach()
        with torch.no_grad(), taps.edit({inspected.embedding: ablate}):
            ablated = target_log_probabilities(inspected, inspected.run(size - first), outcome)[:, position]
    drop = (objective.detach() - ablated).double().cpu().numpy()
    return Saliency(inspected.read[first:], products.double().cpu().numpy(), drop, first)


def target_outcome(inspected: InspectedText, scores: Tensor, position: int = -1) -> int:
    """The observed outcome at a position, or else the most likely one."""
    position = position % scores.shape[1]
    if position < len(inspected.truth):
        return int(inspected.truth[position])
    return int(scores[0, position].argmax())


def saliency_panel(found: Saliency, outcome: str) -> Bars:
    """Both attributions, each relative to its own largest."""
    bars = {
        name: values / (np.abs(values).max() or 1.0)
        for name, values in (("gradient × input", found.gradient), ("leave-one-out", found.occlusion))
    }
    title = f"Attribution of {outcome!r}: tokens for it, and (below zero) against it"
    return Bars(found.tokens, bars, "relative attribution", (-1.05, 1.05), title=title, quantity="influence")
