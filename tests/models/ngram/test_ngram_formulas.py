"""Every smoothing against its formula; probabilities sum to one."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as tried
from ngram_cases import (
    BEGIN,
    EOS,
    SMOOTHINGS,
    VOCABULARY,
    Documents,
    Slow,
    distributions,
    documents,
    fitted,
    regular,
    texts,
)
from ngram_cases import settings as any_settings


@tried(max_examples=60)
@given(docs=documents, text=texts, settings=any_settings())
def test_every_probability_equals_the_formula(docs: Documents, text: list[int], settings: dict[str, Any]) -> None:
    """Catches: raw counts below the highest order; continuation counts at the beginning of documents too; n-grams at
    the beginning left out; what pruning took lost; pruned counts kept."""
    model = fitted(docs, **settings)
    slow = Slow(docs, model.config)
    past = (BEGIN, *text)
    expected = [[slow.probability(past[: i + 1], word) for word in range(VOCABULARY)] for i in range(len(past))]
    torch.testing.assert_close(distributions(model, text), torch.tensor(expected).double(), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [2, 3, 4])
def test_estimated_discounts_equal_the_formula(order: int, smoothing: str) -> None:
    """Catches: n-grams counted over the end of a document, which only shows in the counts of counts."""
    docs = regular(300, seed=order)
    model = fitted(docs, order=order, smoothing=smoothing)
    slow, past = Slow(docs, model.config), (BEGIN, 1, 2, 3, 1, 5, 2)
    expected = [[slow.probability(past[: i + 1], word) for word in range(VOCABULARY)] for i in range(len(past))]
    found = distributions(model, list(past[1:]))
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("prune", [[1], [1, 1, 2, 3]])
@pytest.mark.parametrize("order", [1, 2, 7])
def test_all_distributions_sum_to_one(order: int, smoothing: str, prune: list[int]) -> None:
    """For contexts seen and unseen, of text that has all kinds of counts. Catches: pruned
    n-grams still numbered."""
    model = fitted(regular(2000), order=order, smoothing=smoothing, prune=prune)
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (20, 30), generator=random)
    logits, _ = model(tokens)
    assert logits.shape == (20, 30, VOCABULARY)
    torch.testing.assert_close(logits.double().exp().sum(-1), torch.ones(20, 30).double(), rtol=0, atol=2e-6)


def test_context_does_not_cross_document_boundaries() -> None:
    model = fitted([[1, 2], [3, 4]] * 5, order=3, smoothing="maximum-likelihood")
    after_end = model(torch.tensor([[EOS, 1, 2, EOS]]))[0][0, -1]
    at_start = model(torch.tensor([[EOS]]))[0][0, -1]
    assert torch.equal(after_end, at_start)
    assert after_end.exp().tolist() == pytest.approx([0, 0.5, 0, 0.5, 0, 0])


def test_maximum_likelihood_gives_infinite_loss_to_unseen_n_grams() -> None:
    """The loss is infinite exactly for unseen n-grams after a known context."""
    model = fitted([[1, 2, 3]], order=2, smoothing="maximum-likelihood")
    losses, _ = model.losses(torch.tensor([[EOS, 1, 2, 1]]), torch.tensor([[1, 2, 1, 5]]))
    assert losses.tolist() == [[0, 0, torch.inf, torch.inf]]
    assert all(part.isfinite().all() for part in model.state_dict().values())


def test_unigram_model_has_no_context() -> None:
    model = fitted([[1, 1, 2]], order=1, smoothing="maximum-likelihood")
    logits, state = model(torch.tensor([[EOS, 1, 2]]))
    assert state.shape == (1, 0)
    assert logits[0, 0].exp().tolist() == pytest.approx([0.25, 0.5, 0.25, 0, 0, 0])
    assert torch.equal(logits[0, 0], logits[0, 2])


def test_unfitted_model_is_uniform() -> None:
    logits, _ = fitted([], order=3)(torch.tensor([[EOS, 1, 2]]))
    assert logits.exp().flatten().tolist() == pytest.approx([1 / VOCABULARY] * 3 * VOCABULARY)
