"""Which earlier token each answer of a model depends on: gradients of a text's own scores by its word vectors.

All rows of the matrix come from one backward pass: the text is read in as many copies as there are answers, and copy i
is asked for answer i.
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

MOST = 256  # answers of one matrix; of longer texts the last ones

WHOLE_TEXT = ("label", "value")  # goals whose last position answers for the text


class Connection(NamedTuple):
    """Norms (answers, tokens read) of the gradient, and the signed gradient times vector, which sums to a share."""

    norms: NDArray[np.float64]
    products: NDArray[np.float64]
    first: int  # position of the first answer
    answers: list[str]
    tokens: list[str]
    floor: float  # below this, the precision that was used has no normal numbers


def connect(reading: InspectedText, most: int = MOST, outcome: int | None = None) -> Connection:
    """Of the log-probability of what came (or of an outcome), at each position by each token read."""
    if not any(parameter.requires_grad for parameter in reading.model.parameters()):
        raise ConfigError("a counted model has no gradients; elman inspect predictions shows which n-grams it uses")
    with inference_mode(reading.model, gradients=True):
        with torch.no_grad():
            known = len(reading.run(1)[0])
        first = max(0, known - most)
        vectors: list[Tensor] = []

        def probe(value: Tensor) -> Tensor:
            vectors.append(value.detach().requires_grad_())
            return vectors[-1]

        with taps.edit({reading.embedding: probe}):
            scores = reading.run(known - first)
        asked = asked_scores(reading, scores, outcome)
        own = asked[torch.arange(known - first), torch.arange(first, known)].sum()
        (gradient,) = torch.autograd.grad(own, vectors[0])
        products = (gradient * vectors[0]).sum(-1)
    size = len(reading.read)
    names = answers(reading, scores)[first:]
    norms, products = gradient.double().norm(dim=-1)[:, :size], products[:, :size].detach()
    wide = norms.double().cpu().numpy(), products.double().cpu().numpy()
    return Connection(*wide, first, names, reading.read, torch.finfo(gradient.dtype).tiny)


def log_chances(reading: InspectedText, scores: Tensor) -> Tensor:
    """Of every outcome at every position, in float32 at least; of a number its value."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if reading.goal == "value":
        return wide
    return torch.nn.functional.logsigmoid(wide) if reading.several else wide.log_softmax(-1)


def asked_scores(reading: InspectedText, scores: Tensor, outcome: int | None = None) -> Tensor:
    """Log-probability (copies, positions) of what came, and where that is not known of what is likeliest."""
    chances = log_chances(reading, scores)
    chosen = scores[:1].argmax(-1)[0]
    if outcome is not None:
        chosen = torch.full_like(chosen, outcome)
    elif len(reading.truth):
        known = torch.tensor(list(reading.truth), device=chosen.device)
        chosen = torch.cat([known, chosen[len(known) :]])[: len(chosen)]
    elif reading.goal in WHOLE_TEXT:
        chosen = chosen[-1:].expand_as(chosen)  # one verdict, on the whole text, is followed from its start
    return chances.gather(-1, chosen.view(1, -1, 1).expand(len(scores), -1, 1)).squeeze(-1)


def answers(reading: InspectedText, scores: Tensor) -> list[str]:
    """What each position is asked for, by name."""
    best = [reading.outcome(int(number)) for number in scores[0].argmax(-1)]
    if reading.goal in WHOLE_TEXT:
        return [best[-1]] * len(best)
    came = [reading.outcome(number) for number in reading.truth]
    return [*came, *(f"{name}?" for name in best[len(came) :])][: len(best)]


def by_lag(found: Connection, name: str, layer: str = "") -> GradientDecay:
    """Mean norm at each distance between answer and token; for texts that are read and answered side by side."""
    rows = np.arange(found.first, found.first + len(found.norms))[:, None]
    lags = rows - np.arange(found.norms.shape[1])[None]
    count = int(lags.max()) + 1
    means = [float(found.norms[lags == lag].mean()) for lag in range(count)]
    return GradientDecay(name, layer, np.arange(count), np.array(means), found.floor)
