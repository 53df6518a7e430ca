"""Gradients of the predictions of a text by its token embeddings: which prediction depends on which token.

One backward pass gives all rows of the matrix: the batch holds a copy of the text for each prediction, and the
objective of copy i is prediction i. Saliency explains one prediction in two ways: gradient × input is the effect of a
small change, leave-one-out ablation that of removing a token. They often disagree; trust what both say.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.errors import ConfigError
from elman.evaluation.inference_mode import inference_mode
from elman.figures.panels import Bars, as_array
from elman.inspection.gradient_decay import GradientDecay
from elman.inspection.inspected_text import InspectedText
from elman.ops import taps

LIMIT = 256  # rows of a matrix, and tokens that are ablated one by one; of a longer text the last ones
WHOLE_TEXT = ("label", "value")  # goals whose last position is the prediction for the text


class TokenGradients(NamedTuple):
    """By prediction (rows) and token (columns)."""

    norms: NDArray[np.float64]  # of the gradient by the embedding
    first: int  # position of the first prediction
    targets: list[str]
    tokens: list[str]
    floor: float  # smallest normal number of the dtype


def token_gradients(inspected: InspectedText, limit: int = LIMIT) -> TokenGradients:
    """Of the log-probability of the observed outcome at each position, or of the most likely one where unknown."""
    if not any(parameter.requires_grad for parameter in inspected.model.parameters()):
        raise ConfigError("an n-gram model has no gradients; elman inspect predictions shows which n-grams it uses")
    count = len(inspected.scores())
    first = max(0, count - limit)

    def objective(scores: Tensor) -> Tensor:
        log_probs = target_log_probabilities(inspected, scores)
        return log_probs[torch.arange(count - first), torch.arange(first, count)].sum()

    with inference_mode(inspected.model, gradients=True):
        scores, _, _, gradient = embedding_gradient(inspected, count - first, objective)
    names = target_names(inspected, scores)[first:]
    norms = gradient.double().norm(dim=-1)[:, : len(inspected.read)]
    return TokenGradients(as_array(norms), first, names, inspected.read, torch.finfo(gradient.dtype).tiny)


def embedding_gradient(
    inspected: InspectedText, copies: int, objective: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores of copies of a text, an objective of them, the embeddings, and the gradient of the objective by these."""
    leaves: list[Tensor] = []

    def as_leaf(value: Tensor) -> Tensor:
        leaves.append(value.detach().requires_grad_())
        return leaves[-1]

    with taps.edit({inspected.embedding: as_leaf}):
        scores = inspected.run(copies)
    value = objective(scores)
    (gradient,) = torch.autograd.grad(value, leaves[0])
    return scores.detach(), value.detach(), leaves[0].detach(), gradient


def target_outcomes(inspected: InspectedText, scores: Tensor) -> Tensor:
    """The observed outcome at each position, or the most likely one where unknown; of a whole text its final class."""
    likeliest = scores[0].argmax(-1)
    if inspected.goal in WHOLE_TEXT and not len(inspected.truth):
        return likeliest[-1:].expand_as(likeliest)  # followed from the first token on
    known = torch.tensor(list(inspected.truth), dtype=likeliest.dtype, device=likeliest.device)
    return torch.cat([known, likeliest[len(known) :]])[: len(likeliest)]


def target_log_probabilities(inspected: InspectedText, scores: Tensor, outcome: int | None = None) -> Tensor:
    """Log-probabilities (copies, positions) of the targets, or of one outcome."""
    targets = target_outcomes(inspected, scores)
    targets = targets if outcome is None else torch.full_like(targets, outcome)
    return inspected.log_probabilities(scores).gather(-1, targets.view(1, -1, 1).expand(len(scores), -1, 1)).squeeze(-1)


def target_names(inspected: InspectedText, scores: Tensor) -> list[str]:
    """The targets by name, with a question mark where they are predicted instead of observed."""
    observed = len(scores[0]) if inspected.goal in WHOLE_TEXT else len(inspected.truth)
    names = [inspected.outcome(target) for target in target_outcomes(inspected, scores).tolist()]
    return [name if position < observed else f"{name}?" for position, name in enumerate(names)]


def mean_by_lag(found: TokenGradients, name: str) -> GradientDecay:
    """Mean norm by distance between prediction and token, if both are at the same positions."""
    rows = np.arange(found.first, found.first + len(found.norms))[:, None]
    lags = rows - np.arange(found.norms.shape[1])[None]
    count = int(lags.max()) + 1
    means = [float(found.norms[lags == lag].mean()) for lag in range(count)]
    return GradientDecay(name, "", np.arange(count), np.array(means), found.floor)


class Saliency(NamedTuple):
    """Attribution of a log-probability to each token, in nats; negative for tokens that lower it."""

    tokens: list[str]
    gradient: NDArray[np.float64]  # gradient × embedding, summed over its units
    occlusion: NDArray[np.float64]  # log-probability minus that with the embedding of the token set to zero


def saliency(inspected: InspectedText, position: int = -1, outcome: int | None = None) -> Saliency:
    """Of the outcome at a position; by default the observed one, or else the most likely."""
    size = len(inspected.read)
    first = max(0, size - LIMIT)
    target = target_outcome(inspected, inspected.scores(), position) if outcome is None else outcome

    def ablate(value: Tensor) -> Tensor:
        """Copy i of the text is without token first + i."""
        value = value.clone()
        value[torch.arange(size - first), torch.arange(first, size)] = 0
        return value

    def objective(scores: Tensor) -> Tensor:
        return target_log_probabilities(inspected, scores, target)[:, position]

    with inference_mode(inspected.model, gradients=True):
        _, value, embeddings, gradient = embedding_gradient(inspected, 1, lambda scores: objective(scores).sum())
        products = (gradient * embeddings).sum(-1)[0, first:size]
        with torch.no_grad(), taps.edit({inspected.embedding: ablate}):
            drop = value - objective(inspected.run(size - first))
    return Saliency(inspected.read[first:], as_array(products), as_array(drop.double()))


def target_outcome(inspected: InspectedText, scores: Tensor, position: int = -1) -> int:
    """The observed outcome at a position, or else the most likely one."""
    position = position % len(scores)
    return int(inspected.truth[position] if position < len(inspected.truth) else scores[position].argmax())


def saliency_panel(found: Saliency, outcome: str) -> Bars:
    """Both attributions, each relative to its own largest."""
    bars = {
        name: values / (np.abs(values).max() or 1.0)
        for name, values in (("gradient × input", found.gradient), ("leave-one-out", found.occlusion))
    }
    title = f"Attribution of {outcome!r}: tokens for it, and (below zero) against it"
    return Bars(found.tokens, bars, "relative attribution", (-1.05, 1.05), title=title, quantity="influence")
