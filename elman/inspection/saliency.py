"""Which tokens an answer rests on, asked twice: by gradient, and by leaving each token out.

The gradient says what a small change would do, occlusion what a missing token does. They often differ; where both agree
there is something to trust.
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

MOST = 256  # tokens that are left out one by one; of a longer text the last ones


class Saliency(NamedTuple):
    """Nats of log-probability that each token brings the answer; negative ones speak against it."""

    tokens: list[str]
    gradient: NDArray[np.float64]
    occlusion: NDArray[np.float64]
    first: int


def saliency(inspected: InspectedText, place: int = -1, outcome: int | None = None) -> Saliency:
    """Of the answer at a position (the last, if nothing else is said): gradient times vector, and what is lost without
    each token, whose vector is put to zero."""
    size = len(inspected.read)
    first = max(0, size - MOST)
    vectors: list[Tensor] = []

    def probe(value: Tensor) -> Tensor:
        vectors.append(value.detach().requires_grad_())
        return vectors[-1]

    def leave_out(value: Tensor) -> Tensor:
        value = value.clone()
        for copy, token in enumerate(range(first, size)):
            value[copy, token] = 0
        return value

    with inference_mode(inspected.model, gradients=True):
        with taps.edit({inspected.embedding: probe}):
            scores = inspected.run(1)
        outcome = chosen(inspected, scores, place) if outcome is None else outcome
        whole = target_log_probabilities(inspected, scores, outcome)[0, place]
        (gradient,) = torch.autograd.grad(whole, vectors[0])
        products = (gradient * vectors[0]).sum(-1)[0, first:size].detach()
        with torch.no_grad(), taps.edit({inspected.embedding: leave_out}):
            without = target_log_probabilities(inspected, inspected.run(size - first), outcome)[:, place]
    lost = (whole.detach() - without).double().cpu().numpy()
    return Saliency(inspected.read[first:], products.double().cpu().numpy(), lost, first)


def chosen(inspected: InspectedText, scores: Tensor, place: int = -1) -> int:
    """What is asked for at a position: what came there, or else what is likeliest."""
    place = place % scores.shape[1]
    return int(inspected.truth[place]) if place < len(inspected.truth) else int(scores[0, place].argmax())


def saliency_panel(found: Saliency, answer: str) -> Bars:
    """Both beside each other, each as a share of its own largest."""
    shares = {
        name: values / (np.abs(values).max() or 1.0)
        for name, values in (("gradient × vector", found.gradient), ("left out", found.occlusion))
    }
    title = f"What speaks for {answer!r}, and (below zero) against it"
    return Bars(found.tokens, shares, "share of the largest", (-1.05, 1.05), title=title, quantity="influence")
