"""Gradients of the predictions of a text by its token embeddings: which prediction depends on which earlier token.

One backward pass gives all rows of the matrix: the batch holds a copy of the text for each prediction, and the
objective of copy i is prediction i.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.errors import ConfigError
from elman.evaluation.inference_mode import inference_mode
from elman.inspection.gradient_decay import GradientDecay
from elman.inspection.inspected_text import InspectedText
from elman.ops import taps

LIMIT = 256  # rows of a matrix; of a longer text the last predictions
WHOLE_TEXT = ("label", "value")  # goals whose last position is the prediction for the text


class TokenGradients(NamedTuple):
    """By prediction (rows) and token (columns)."""

    norms: NDArray[np.float64]  # of the gradient by the embedding
    products: NDArray[np.float64]  # gradient × embedding, summed over its units
    first: int  # position of the first prediction
    targets: list[str]
    tokens: list[str]
    floor: float  # smallest normal number of the dtype


def token_gradients(inspected: InspectedText, limit: int = LIMIT, outcome: int | None = None) -> TokenGradients:
    """Of the log-probability of the observed outcome (or of `outcome`) at each position."""
    if not any(parameter.requires_grad for parameter in inspected.model.parameters()):
        raise ConfigError("an n-gram model has no gradients; elman inspect predictions shows which n-grams it uses")
    with inference_mode(inspected.model, gradients=True):
        with torch.no_grad():
            count = len(inspected.run(1)[0])
        first = max(0, count - limit)
        leaves: list[Tensor] = []

        def as_leaf(value: Tensor) -> Tensor:
            leaves.append(value.detach().requires_grad_())
            return leaves[-1]

        with taps.edit({inspected.embedding: as_leaf}):
            scores = inspected.run(count - first)
        log_probs = target_log_probabilities(inspected, scores, outcome)
        objective = log_probs[torch.arange(count - first), torch.arange(first, count)].sum()
        (gradient,) = torch.autograd.grad(objective, leaves[0])
        products = (gradient * leaves[0]).sum(-1)
    size = len(inspected.read)
    names = target_names(inspected, scores)[first:]
    norms, products = gradient.double().norm(dim=-1)[:, :size], products[:, :size].detach()
    arrays = norms.double().cpu().numpy(), products.double().cpu().numpy()
    return TokenGradients(*arrays, first, names, inspected.read, torch.finfo(gradient.dtype).tiny)


def log_probabilities(inspected: InspectedText, scores: Tensor) -> Tensor:
    """Of every outcome at every position, in float32 or wider; of a regression its value."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if inspected.goal == "value":
        return wide
    return torch.nn.functional.logsigmoid(wide) if inspected.multi_label else wide.log_softmax(-1)


def target_log_probabilities(inspected: InspectedText, scores: Tensor, outcome: int | None = None) -> Tensor:
    """Log-probabilities (copies, positions) of the observed outcomes, or of the most likely ones where unknown."""
    log_probs = log_probabilities(inspected, scores)
    targets = scores[:1].argmax(-1)[0]
    if outcome is not None:
        targets = torch.full_like(targets, outcome)
    elif len(inspected.truth):
        known = torch.tensor(list(inspected.truth), device=targets.device)
        targets = torch.cat([known, targets[len(known) :]])[: len(targets)]
    elif inspected.goal in WHOLE_TEXT:
        targets = targets[-1:].expand_as(targets)  # the final class, followed from the first token on
    return log_probs.gather(-1, targets.view(1, -1, 1).expand(len(scores), -1, 1)).squeeze(-1)


def target_names(inspected: InspectedText, scores: Tensor) -> list[str]:
    """The outcome at each position by name, with a question mark where it is predicted instead of observed."""
    best = [inspected.outcome(int(number)) for number in scores[0].argmax(-1)]
    if inspected.goal in WHOLE_TEXT:
        return [best[-1]] * len(best)
    observed = [inspected.outcome(number) for number in inspected.truth]
    return [*observed, *(f"{name}?" for name in best[len(observed) :])][: len(best)]


def mean_by_lag(found: TokenGradients, name: str, layer: str = "") -> GradientDecay:
    """Mean norm by distance between prediction and token, if both are at the same positions."""
    rows = np.arange(found.first, found.first + len(found.norms))[:, None]
    lags = rows - np.arange(found.norms.shape[1])[None]
    count = int(lags.max()) + 1
    means = [float(found.norms[lags == lag].mean()) for lag in range(count)]
    return GradientDecay(name, layer, np.arange(count), np.array(means), found.floor)
