"""Excess loss over the true distribution, and agreement by definition."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.corpus.document import Document, Mark
from elman.errors import DataError
from elman.evaluation import word_probabilities
from elman.evaluation.likelihood import evaluate
from elman.evaluation.synthetic import agreement, compare, excess

WORDS = ["dog", "dogs", "near", "runs", "run"]
END = ""


class Coins:
    """A word with 1/2 (each of the five alike), the end with 1/2."""

    entropy = math.log(2) + 0.5 * math.log(5)

    def log_probs(self, words):
        return [math.log(0.1)] * len(words) + [math.log(0.5)]


class Constant:
    """The same logits everywhere, so each word's probability is known. Not a module."""

    def __init__(self, tokenizer, probabilities):
        self.logits = torch.full((tokenizer.vocab_size,), -torch.inf)
        self.logits[0] = math.log(probabilities[END]) + 3.0  # logits need not be normalized
        for word, probability in probabilities.items():
            if word:
                self.logits[tokenizer.ids[word]] = math.log(probability) + 3.0

    def initial_state(self, batch):
        return ()

    def forward(self, tokens, state, lengths):
        return self.logits.expand(*tokens.shape, -1), state

    def losses(self, inputs, targets, state, lengths):
        return -self.logits.log_softmax(-1)[targets], state


TRUE = dict.fromkeys(WORDS, 0.1) | {END: 0.5}

DOCUMENTS = [
    Document("dog runs", marks=(Mark(1, 0, "run"),)),
    Document("dog near dogs runs", marks=(Mark(3, 2, "run", 1),)),
    Document("dogs run near dog", marks=(Mark(1, 0, "runs"),)),
    Document("near", source="here.txt", line=4),
    Document(""),
]


@pytest.fixture
def tokenizer(fake):
    return fake.Words(WORDS)


def test_true_distribution_has_no_excess_loss(tokenizer):
    result = compare(Constant(tokenizer, TRUE), tokenizer, Coins(), DOCUMENTS)
    assert result.excess.tokens == 11 + 5
    assert result.excess.loss == pytest.approx(result.excess.best, rel=1e-6)
    assert result.excess.excess == pytest.approx(0, abs=1e-6)
    assert result.excess.entropy == Coins.entropy


def test_excess_loss_equals_a_sum_by_hand(tokenizer):
    uneven = {"dog": 0.2, "dogs": 0.1, "near": 0.1, "runs": 0.3, "run": 0.1, END: 0.2}
    result = compare(Constant(tokenizer, uneven), tokenizer, Coins(), DOCUMENTS)
    own = -sum(math.log(uneven[word]) for document in DOCUMENTS for word in [*document.text.split(), END])
    best = -sum(sum(Coins().log_probs(document.text.split())) for document in DOCUMENTS)
    assert result.excess.excess == pytest.approx((own - best) / 16, rel=1e-5)
    assert result.excess.relative == pytest.approx((own - best) / best, rel=1e-5)
    at_zero, at_two = result.by_distance
    assert at_zero == (0, pytest.approx(-math.log(0.3 * 0.1) / 2), pytest.approx(math.log(10)), 2)
    assert at_two == (2, pytest.approx(-math.log(0.3)), pytest.approx(math.log(10)), 1)
    assert result.agreement.accuracy == pytest.approx(2 / 3)
    assert result.agreement.by_distance == [(0, 0.5, 2), (2, 1.0, 1)]
    assert result.agreement.by_attractors == [(0, 0.5, 2), (1, 1.0, 1)]
    assert result.agreement == agreement(Constant(tokenizer, uneven), tokenizer, DOCUMENTS)
    assert json.loads(json.dumps(result.plain(), allow_nan=False)) == result.plain()


def test_the_excess_of_a_score_is_that_of_the_comparison(fake, tokenizer):
    model = fake.TinyModel(vocab=tokenizer.vocab_size)
    encoded = [tokenizer.encode(document.text) for document in DOCUMENTS]
    score = evaluate(model, fake.Documents(encoded, 2, 3), fake.facts(encoded), "fresh")
    direct, compared = excess(score, Coins(), DOCUMENTS), compare(model, tokenizer, Coins(), DOCUMENTS).excess
    assert direct.plain() == pytest.approx(compared.plain(), rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), min_size=1, max_size=9), st.data())
def test_word_scores_do_not_depend_on_batching(fake, texts, data):
    tokenizer, model = fake.Words(WORDS), fake.TinyModel(vocab=7).eval()
    documents, expected = [], []
    for words in texts:
        place = data.draw(st.integers(0, len(words) - 1))
        wrong = data.draw(st.sampled_from(WORDS))
        documents.append(Document(" ".join(words), marks=(Mark(place, len(expected), wrong),)))
        ids = torch.tensor([[0, *tokenizer.encode(" ".join(words[:place]))]])
        logits = model.forward(ids, model.initial_state(1))[0][0, -1]
        expected.append(bool(logits[tokenizer.ids[words[place]]] > logits[tokenizer.ids[wrong]]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_probabilities, "LOGITS", data.draw(st.sampled_from([1, 100, 2**24])))
        patch.setattr(word_probabilities, "POOL", data.draw(st.sampled_from([1, 3, 1024])))
        found = agreement(model, tokenizer, documents)
    assert [accuracy.accuracy for accuracy in found.by_distance] == expected


def test_number_of_logits_per_batch_is_bounded(fake, tokenizer, monkeypatch):
    sizes = []

    class Watched(fake.TinyModel):
        def forward(self, tokens, state, lengths):
            sizes.append(tokens.shape)
            return super().forward(tokens, state, lengths)

    monkeypatch.setattr(word_probabilities, "LOGITS", 200)
    documents = [Document("dog " * length + "runs", marks=(Mark(length, 0, "run"),)) for length in range(1, 30)]
    agreement(Watched(vocab=7), tokenizer, documents)
    assert sum(rows for rows, _ in sizes) == 29
    assert all(rows == 1 or rows * time * 7 <= 200 for rows, time in sizes)
    assert max(rows for rows, _ in sizes) > 2


def test_forms_outside_the_vocabulary_are_left_out_and_counted(fake, tokenizer):
    strange = [
        Document("dog barks", marks=(Mark(1, 0, "run"),)),
        Document("dog runs", marks=(Mark(1, 0, "bark"),)),
    ]
    found = agreement(fake.TinyModel(vocab=7), tokenizer, DOCUMENTS + strange)
    assert (found.words, found.skipped) == (3, 2)
    with pytest.raises(DataError, match="2 marked words, none of them in the vocabulary"):
        agreement(fake.TinyModel(vocab=7), tokenizer, strange)


def test_a_language_without_marks_is_compared_without_agreement(tokenizer):
    assert compare(Constant(tokenizer, TRUE), tokenizer, Coins(), DOCUMENTS[3:]).agreement is None
    with pytest.raises(DataError, match="no marked word"):
        agreement(Constant(tokenizer, TRUE), tokenizer, DOCUMENTS[3:])
    with pytest.raises(DataError, match="no document"):
        compare(Constant(tokenizer, TRUE), tokenizer, Coins(), [])


class Pieces:
    """Tokens that are not words: characters; or words that carry the space before them."""

    eos_id, unk_id, vocab_size = 0, None, 300

    def __init__(self, by_character):
        self.by_character = by_character

    def encode(self, text):
        if self.by_character:
            return [ord(character) for character in text]
        return [hash(word) % 140 + 2 + 140 * (place > 0) for place, word in enumerate(text.split())]


@pytest.mark.parametrize(("by_character", "reason"), [(True, "takes 4 tokens"), (False, "not those of its words")])
def test_tokens_that_are_not_words_are_rejected(fake, by_character, reason):
    document = Document("dogs near dogs", source="here.txt", line=4)
    with pytest.raises(DataError, match=f"here.txt, line 4: .*{reason}.*word tokenizer"):
        agreement(fake.TinyModel(vocab=300), Pieces(by_character), [document])
