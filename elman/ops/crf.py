"""Linear-chain conditional random field (Lafferty et al., 2001): a distribution over tag sequences.

    score(tags) = start[t_1] + Σ_i scores[i, t_i] + Σ_i between[t_i, t_{i+1}] + end[t_n]

Dynamic programming over time sums over all sequences (forward algorithm) or finds the best (Viterbi). A score of -inf
forbids a tag or transition. A row of length 0 has one, empty, tag sequence with score 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from elman.shapes import Lengths, Sequence, Tokens


class Chain(NamedTuple):
    """Scores that do not depend on the input; -inf forbids."""

    start: Tensor  # (tags,): of a first tag
    end: Tensor  # (tags,): of a last tag
    between: Tensor  # (tags, tags): of the transition from the row's tag to the column's


class Best(NamedTuple):
    """The best tag sequence, 0 at padding, and its score; -inf where every sequence is forbidden."""

    tags: Tokens
    score: Tensor


def path_score(scores: Sequence, chain: Chain, tags: Tokens, lengths: Lengths | None = None) -> Tensor:
    """The score (batch,) of given tag sequences."""
    scores, lengths, real = _prepare(scores, lengths)
    if scores.shape[1] == 0:
        return scores.new_zeros(len(scores))
    chain = Chain(*(part.to(scores.dtype) for part in chain))  # sums in bfloat16 lose small terms
    tags = tags.masked_fill(~real, 0)
    single = scores.gather(2, tags.unsqueeze(2)).squeeze(2).masked_fill(~real, 0)
    steps = chain.between[tags[:, :-1], tags[:, 1:]].masked_fill(~real[:, 1:], 0)
    ends = chain.start[tags[:, 0]] + chain.end[_last(tags.unsqueeze(2), lengths).squeeze(1)]
    return single.sum(1) + steps.sum(1) + ends.masked_fill(lengths == 0, 0)


def log_partition(scores: Sequence, chain: Chain, lengths: Lengths | None = None) -> Tensor:
    """The log-partition function (batch,): logsumexp of all tag sequences' scores; -inf if all are forbidden."""
    scores, lengths, _ = _prepare(scores, lengths)
    if scores.shape[1] == 0:
        return scores.new_zeros(len(scores))
    total = _log_sum(_last(_forward(scores, chain), lengths) + chain.end, 1)
    return total.masked_fill(lengths == 0, 0)


def marginals(scores: Sequence, chain: Chain, lengths: Lengths | None = None) -> Tensor:
    """Marginal probabilities (batch, time, tags) by the forward-backward algorithm; 0 at padding.

    NaN for rows where every sequence is forbidden.
    """
    scores, lengths, real = _prepare(scores, lengths)
    if scores.shape[1] == 0:
        return torch.zeros_like(scores)
    before = _forward(scores, chain)
    after = chain.end.expand(len(scores), -1)
    rest = [after]
    for time in range(scores.shape[1] - 1, 0, -1):
        inner = _log_sum(chain.between + (scores[:, time] + after).unsqueeze(1), 2)
        after = torch.where(real[:, time, None], inner, chain.end)
        rest.append(after)
    both = before + torch.stack(rest[::-1], 1)
    total = _log_sum(_last(before, lengths) + chain.end, 1)
    return (both - total[:, None, None]).exp().masked_fill(~real.unsqueeze(2), 0)


@torch.no_grad()
def best_path(scores: Sequence, chain: Chain, lengths: Lengths | None = None) -> Best:
    """Viterbi: the tag sequence with the highest score."""
    scores, lengths, real = _prepare(scores, lengths)
    if scores.shape[1] == 0:
        return Best(real.long(), scores.new_zeros(len(scores)))
    best = chain.start + scores[:, 0]
    history, origins = [best], []
    for time in range(1, scores.shape[1]):
        best, origin = (best.unsqueeze(2) + chain.between).max(1)
        best = best + scores[:, time]
        history.append(best)
        origins.append(origin)
    score, last = (_last(torch.stack(history, 1), lengths) + chain.end).max(1)
    tag, found = last, []
    for time in range(scores.shape[1] - 1, -1, -1):
        inside = time < lengths - 1
        if time < len(origins):
            tag = torch.where(inside, origins[time].gather(1, tag.unsqueeze(1)).squeeze(1), last)
        found.append(tag)
    tags = torch.stack(found[::-1], 1).masked_fill(~real, 0)
    return Best(tags, score.masked_fill(lengths == 0, 0))


def _prepare(scores: Tensor, lengths: Lengths | None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores in float32 at least and 0 at padding, lengths, and the mask of real positions."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    batch, time, _ = scores.shape
    lengths = torch.full((batch,), time, device=scores.device) if lengths is None else lengths.to(scores.device)
    real = torch.arange(time, device=scores.device) < lengths.unsqueeze(1)
    return scores.masked_fill(~real.unsqueeze(2), 0), lengths, real


def _forward(scores: Tensor, chain: Chain) -> Tensor:
    """Forward variables (batch, time, tags): logsumexp over all prefixes that end in a tag."""
    before = chain.start + scores[:, 0]
    history = [before]
    for time in range(1, scores.shape[1]):
        before = _log_sum(before.unsqueeze(2) + chain.between, 1) + scores[:, time]
        history.append(before)
    return torch.stack(history, 1)


def _last(values: Tensor, lengths: Lengths) -> Tensor:
    """Values (batch, time, ...) at each row's last real position; at its first in rows without any."""
    return values[torch.arange(len(values), device=values.device), (lengths - 1).clamp(min=0)]


def _log_sum(x: Tensor, axis: int) -> Tensor:
    """logsumexp whose gradient is 0 where all arguments are -inf; that of torch.logsumexp is NaN."""
    top = x.detach().amax(axis, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    total = (x - top).exp().sum(axis)
    nothing = total == 0
    return (total.masked_fill(nothing, 1).log() + top.squeeze(axis)).masked_fill(nothing, -torch.inf)
