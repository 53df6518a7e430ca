"""Likelihood scores: independent of chunking, and equal to a sum by hand."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.errors import ElmanError
from elman.evaluation.likelihood import evaluate

EOS = 0
texts = st.lists(st.lists(st.integers(1, 11), max_size=9), min_size=1, max_size=7)


def losses_by_hand(model, documents):
    """One document after another, one token after another."""
    model.eval()
    result = []
    for document in documents:
        inputs, targets = torch.tensor([[EOS, *document]]), torch.tensor([[*document, EOS]])
        losses, _ = model.losses(inputs, targets, model.initial_state(1))
        result.append(losses[0].detach().double().tolist())
    return result


@settings(max_examples=40, deadline=None)
@given(texts, st.integers(1, 4), st.integers(1, 12))
def test_document_scores_do_not_depend_on_chunking(fake, documents, batch_size, length):
    model = fake.TinyModel()
    losses = losses_by_hand(model, documents)
    score = evaluate(model, fake.Documents(documents, batch_size, length), fake.facts(documents), "fresh")
    flat = [nats for document in losses for nats in document]
    assert score.tokens == len(flat)
    assert score.loss == pytest.approx(sum(flat) / len(flat), rel=1e-5)
    assert score.perplexity == pytest.approx(math.exp(score.loss))
    for start, end, loss, tokens in score.by_position:
        inside = [nats for document in losses for nats in document[start - 1 : end]]
        assert (end, tokens) == (2 * start - 1, len(inside))
        assert loss == pytest.approx(sum(inside) / tokens, rel=1e-5)
    assert sum(span.tokens for span in score.by_position) == len(flat)


@settings(max_examples=40, deadline=None)
@given(texts, st.integers(1, 12))
def test_stream_scores_do_not_depend_on_chunking(fake, documents, length):
    model = fake.TinyModel()
    whole = [token for document in documents for token in [*document, EOS]][:-1]
    (losses,) = losses_by_hand(model, [whole])
    score = evaluate(model, fake.Lanes(documents, 1, length), fake.facts(documents), "carried")
    assert score.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    for start, end, loss, tokens in score.by_position:
        inside = losses[start - 1 : end]
        assert (loss, tokens) == (pytest.approx(sum(inside) / len(inside), rel=1e-5), len(inside))


@settings(max_examples=25, deadline=None)
@given(texts, st.integers(1, 5), st.integers(1, 6))
def test_parallel_stream_scores_do_not_depend_on_chunking(fake, documents, lanes, length):
    facts = fake.facts(documents)
    lanes = min(lanes, facts.tokens)
    model = fake.TinyModel()
    first, second = (evaluate(model, fake.Lanes(documents, lanes, size), facts, "carried") for size in (length, 1000))
    assert first.loss == pytest.approx(second.loss, rel=1e-5)
    assert [span.tokens for span in first.by_position] == [span.tokens for span in second.by_position]


class Certain:
    """Half a nat for each token. Not a module."""

    def initial_state(self, batch):
        return ()

    def losses(self, inputs, targets, state, lengths):
        return torch.full(inputs.shape, 0.5), state


def test_metrics_match_their_definitions(fake):
    documents = [[1, 2, 3], [1, 1, 4, 5]]  # 9 tokens with the ends
    facts = fake.facts(documents, bytes=30, characters=20, words=6, unknowns=2, unknown_bytes=7, surface=1.5)
    score = evaluate(Certain(), fake.Documents(documents, 2, 10), facts, "each document on its own")
    spelling = math.log(257) * (7 + 2) + 1.5
    assert (score.tokens, score.bytes, score.loss, score.unknowns) == (9, 30, 0.5, 2)
    assert score.unknown_rate == pytest.approx(2 / 9)
    assert score.nats == pytest.approx(4.5 + spelling)
    assert score.bits_per_byte_unspelled == pytest.approx(4.5 / math.log(2) / 30)
    assert score.bits_per_byte == pytest.approx((4.5 + spelling) / math.log(2) / 30)
    assert score.bits_per_character == pytest.approx((4.5 + spelling) / math.log(2) / (20 + 2))
    assert score.word_perplexity == pytest.approx(math.exp((4.5 + spelling) / 6))
    assert score.context == "each document on its own"
    assert score.loss_interval is None  # of two documents


def test_the_plain_form_is_json_with_the_main_numbers_first(fake):
    documents = [[1, 2, 3]]
    score = evaluate(Certain(), fake.Documents(documents, 1, 10), fake.facts(documents), "fresh")
    plain = score.plain()
    names = [name for name in plain if not name.endswith("interval")]
    assert names[:5] == ["loss", "perplexity", "bits_per_byte", "tokens", "bytes"]
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["by_position"][1] == {"start": 2, "end": 3, "loss": 0.5, "tokens": 2}


def test_an_impossible_token_makes_the_score_infinite_and_null_in_json(fake):
    class Wrong(Certain):
        def __init__(self, loss):
            self.loss = loss

        def losses(self, inputs, targets, state, lengths):
            return torch.full(inputs.shape, self.loss), state

    hopeless = evaluate(Wrong(1000.0), fake.Documents([[1]], 1, 10), fake.facts([[1]]), "fresh")
    assert (hopeless.loss, hopeless.perplexity) == (1000.0, math.inf)
    score = evaluate(Wrong(torch.inf), fake.Documents([[1]], 1, 10), fake.facts([[1]]), "fresh")
    assert score.loss == score.perplexity == score.bits_per_byte == math.inf
    assert score.plain()["loss"] is None
    assert score.loss_interval is score.perplexity_interval is None


def test_nan_loss_is_rejected(fake):
    model = fake.TinyModel()
    with torch.no_grad():
        model.head.bias[3] = torch.nan
    with pytest.raises(ElmanError, match="outputs are NaN"):
        evaluate(model, fake.Documents([[1]], 1, 10), fake.facts([[1]]), "fresh")


def test_batches_that_drop_tokens_are_rejected(fake):
    with pytest.raises(ElmanError, match=r"contain 3 tokens, but the text has 4"):
        evaluate(Certain(), fake.Documents([[1, 2]], 1, 10), fake.facts([[1, 2, 3]]), "fresh")
    with pytest.raises(ElmanError, match="nothing to evaluate"):
        evaluate(Certain(), fake.Documents([], 1, 10), fake.facts([]), "fresh")


def test_evaluation_leaves_the_model_unchanged(fake):
    model = fake.TinyModel().train()
    model.cell.eval()
    documents = [[1, 2, 3]]
    first, second = (evaluate(model, fake.Documents(documents, 1, 2), fake.facts(documents), "fresh") for _ in range(2))
    assert first == second  # no dropout
    assert model.training
    assert model.dropout.training
    assert not model.cell.training


def test_the_interval_is_over_documents_when_there_are_many_and_over_blocks_otherwise(fake):
    class ByToken(Certain):
        def losses(self, inputs, targets, state, lengths):
            return targets.float(), state

    documents = [[1] * 6] * 20 + [[3] * 6] * 20
    score = evaluate(ByToken(), fake.Documents(documents, 8, 2), fake.facts(documents), "fresh")
    low, high = score.loss_interval
    assert low < score.loss < high
    spread = 6 / 7 / math.sqrt(40)  # of the mean of 40 documents, whose losses are 6/7 away from it
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.15)
    assert (low + high) / 2 == pytest.approx(score.loss, abs=0.05)
    few = evaluate(ByToken(), fake.Lanes(documents, 1, 7), fake.facts(documents), "carried")
    assert few.loss_interval == pytest.approx(score.loss_interval, rel=0.15)
    assert score.perplexity_interval == pytest.approx((math.exp(low), math.exp(high)))
    nine = evaluate(ByToken(), fake.Documents(documents[:9], 8, 10), fake.facts(documents[:9]), "fresh")
    assert nine.loss_interval is None


@pytest.mark.slow
@pytest.mark.parametrize("texts", [10, 20])
def test_intervals_of_short_texts_hold_the_loss_of_the_model(fake, texts):
    """On new texts of different length. Catches: percentiles of the bootstrap as they are, which hold it in 88 % of
    cases."""
    random, held, trials = np.random.default_rng(texts), 0, 400

    class Noisy(Certain):
        def losses(self, inputs, targets, state, lengths):
            ease = 0.5 * random.normal(size=(len(inputs), 1))
            return torch.as_tensor(3 + ease + random.normal(size=inputs.shape)).float(), state

    for _ in range(trials):
        documents = [[1] * size for size in random.integers(5, 40, texts).tolist()]
        low, high = evaluate(Noisy(), fake.Documents(documents, 64, 64), fake.facts(documents), "fresh").loss_interval
        held += low <= 3 <= high
    assert 0.92 <= held / trials <= 0.98
