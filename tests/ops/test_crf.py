"""The conditional random field is what enumerating every row of tags says it is."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elman.ops.crf import Chain, best_path, log_partition, marginals, path_score

FORBIDDEN = -torch.inf


def case(seed, lengths, tags, share=0.0):
    """Scores, with rubbish at padding, and a chain of which a share is forbidden."""
    dice = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, generator=dice, dtype=torch.float64) * 2

    scores, sizes = drawn(len(lengths), max(lengths), tags), torch.tensor(lengths)
    scores[torch.arange(max(lengths)) >= sizes[:, None]] = torch.nan
    chain = Chain(drawn(tags), drawn(tags), drawn(tags, tags))
    barred = [torch.rand(part.shape, generator=dice) < share for part in chain]
    return scores, Chain(*(part.masked_fill(bar, FORBIDDEN) for part, bar in zip(chain, barred, strict=True))), sizes


def score_of(scores, chain, path):
    if not path:
        return torch.zeros((), dtype=scores.dtype)
    total = chain.start[path[0]] + chain.end[path[-1]]
    total = total + sum(scores[time, tag] for time, tag in enumerate(path))
    return total + sum(chain.between[a, b] for a, b in pairwise(path))


def enumerated(scores, chain, length):
    paths = list(product(range(scores.shape[1]), repeat=length))
    return paths, torch.stack([score_of(scores, chain, path) for path in paths])


shapes = st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any)
shares = st.sampled_from([0.0, 0.3, 0.6])


@given(st.integers(0, 10**6), shapes, st.integers(1, 3), shares)
def test_partition_function_and_viterbi_equal_enumeration(seed, lengths, tags, share):
    """Catches transitions turned round, the end's scores left out, and the end taken at the padding."""
    scores, chain, sizes = case(seed, lengths, tags, share)
    total, best = log_partition(scores, chain, sizes), best_path(scores, chain, sizes)
    for row, length in enumerate(lengths):
        paths, values = enumerated(scores[row], chain, length)
        torch.testing.assert_close(total[row], torch.logsumexp(values, 0))
        torch.testing.assert_close(best.score[row], values.max())
        found = best.tags[row].tolist()
        assert found[length:] == [0] * (max(lengths) - length)
        if values.max() > FORBIDDEN:
            torch.testing.assert_close(score_of(scores[row], chain, found[:length]), values.max())
        path = paths[seed % len(paths)]
        padded = torch.full((1, max(lengths)), 99).index_put(
            (torch.zeros(length, dtype=torch.long), torch.arange(length)), torch.tensor(path, dtype=torch.long)
        )
        given_path = path_score(scores[row : row + 1], chain, padded, sizes[row : row + 1])
        torch.testing.assert_close(given_path[0], score_of(scores[row], chain, path))


@given(st.integers(0, 10**6), shapes, st.integers(1, 3), shares)
def test_marginals_equal_enumeration_and_the_gradient_of_the_log_partition(seed, lengths, tags, share):
    """Catches the way back started at the padding's end, and with padding left in the sums."""
    scores, chain, sizes = case(seed, lengths, tags, share)
    found = marginals(scores, chain, sizes)
    scores = scores.requires_grad_()
    total = log_partition(scores, chain, sizes)
    possible = total > FORBIDDEN
    gradient = torch.autograd.grad(total[possible].sum(), scores)[0] if possible.any() else None
    for row, length in enumerate(lengths):
        if not possible[row]:
            continue
        paths, values = enumerated(scores[row].detach(), chain, length)
        expected = torch.zeros(max(lengths), tags, dtype=torch.float64)
        for path, weight in zip(paths, values.softmax(0), strict=True):
            for time, tag in enumerate(path):
                expected[time, tag] += weight
        torch.testing.assert_close(found[row], expected)
        torch.testing.assert_close(gradient[row], expected)


@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 1])])
def test_gradients_are_right(lengths):
    scores, chain, _ = case(3, [3, 3], 3)
    tags = torch.tensor([[0, 2, 1], [1, 1, 0]])

    def loss(scores, *parts):
        return log_partition(scores, Chain(*parts), lengths) - path_score(scores, Chain(*parts), tags, lengths)

    inputs = [part.requires_grad_() for part in (scores, *chain)]
    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradcheck(lambda scores: marginals(scores, chain, lengths), inputs[:1])


def test_forbidden_transitions_have_zero_gradients_and_no_nan():
    """Catches torch.logsumexp."""
    scores, chain, sizes = case(1, [4, 2], 3)
    chain.between[:, 2] = FORBIDDEN
    chain.start[1:] = FORBIDDEN
    scores = scores.nan_to_num().requires_grad_()
    between = chain.between.clone().requires_grad_()
    log_partition(scores, chain._replace(between=between), sizes).sum().backward()
    assert scores.grad.isfinite().all()
    assert between.grad.isfinite().all()
    assert (scores.grad[:, :, 2] == 0).all()
    assert (between.grad[:, 2] == 0).all()


def test_half_precision_scores_are_summed_in_float32():
    """Catches sums in the scores' own type."""
    scores, chain, sizes = case(2, [40, 31], 5)
    scores, chain = scores.nan_to_num().bfloat16(), Chain(*(part.bfloat16() for part in chain))
    wide, tags = Chain(*(part.double() for part in chain)), torch.arange(80).view(2, 40) % 5
    for found, expected in (
        (log_partition(scores, chain, sizes), log_partition(scores.double(), wide, sizes)),
        (path_score(scores, chain, tags, sizes), path_score(scores.double(), wide, tags, sizes)),
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-4)


def test_a_batch_without_positions_has_score_zero():
    scores, chain, _ = case(2, [1, 1], 3)
    empty, nothing = scores[:, :0], torch.zeros(2, dtype=torch.float64)
    assert torch.equal(log_partition(empty, chain), nothing)
    assert torch.equal(path_score(empty, chain, torch.zeros(2, 0, dtype=torch.long)), nothing)
    assert best_path(empty, chain).tags.shape == (2, 0)
    assert marginals(empty, chain).shape == (2, 0, 3)
