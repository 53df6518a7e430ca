"""Scores are probabilities of texts: over different texts they never sum to more than 1, whatever a tokenizer drops.

The model here is certain of each token, so the probabilities of the texts with the same tokens are those that the
tokenizer's loss leaves: capitals, spacing, Unicode form, unknown words.
"""

import json
import math
from collections import defaultdict
from itertools import product

import pytest
import tokenizers as hf
import torch
from hypothesis import given
from hypothesis import strategies as st
from imported_libraries import BUILDERS

from elman.batches import Documents, TokenStore
from elman.corpus import Document
from elman.evaluation.likelihood import evaluate
from elman.evaluation.score import score_texts
from elman.tokenizers import TOKENIZERS, IdTokenizer, Imported, load_tokenizer, train_tokenizer
from elman.tokenizers.surface import spelled

TEXTS = ["the cat sat .", "The  CAT, (the cat!)\n", " e\u0301 \u00e9 <unk> caf\u00e9", "a a\tA McCat"]
SETTINGS = [
    {"type": "byte"},
    {"type": "bpe", "vocab_size": 270},
    {"type": "character"},
    {"type": "character", "min_frequency": 3},
    {"type": "character", "normalize": "nfc"},
    {"type": "character", "normalize": "nfd", "min_frequency": 2},
    {"type": "word"},
    {"type": "word", "min_frequency": 2},
    {"type": "word", "lowercase": True},
    {"type": "word", "split": "punctuation"},
    {"type": "word", "lowercase": True, "split": "punctuation", "vocab_size": 8},
]
ITEMS = [" ", "\n", "\t", "a", "A", "s", "T", ".", "(", "e", "\u00e9", "e\u0301", "\u212a", "K", "\u0130", "i\u0307"]
ITEMS += ["<unk>", "<eos>", "</s>", "cat", "Cat", "\u2002", "\u2000", "\r", "\x1c", "1", "\ufb01", "\u2581", "\u00df"]
LENGTH = 4  # items of the longest text


class Certain:
    """No loss at any token."""

    def initial_state(self, batch):
        return ()

    def losses(self, inputs, targets, state, lengths):
        return torch.zeros(inputs.shape), state


def nats_of(tokenizer, texts):
    return [
        score.bits_per_byte * math.log(2) * (len(score.text.encode()) + 1)
        for score in score_texts(Certain(), tokenizer, texts)
    ]


def assert_probabilities(tokenizer, items):
    texts = sorted({"".join(parts) for length in range(LENGTH + 1) for parts in product(items, repeat=length)})
    sums = defaultdict(float)
    for text, nats in zip(texts, nats_of(tokenizer, texts), strict=True):
        sums[tuple(tokenizer.encode(text))] += math.exp(-nats)
    assert max(sums.values()) <= 1 + 1e-9


def fitted(settings, texts=TEXTS):
    tokenizer = train_tokenizer(settings, texts)
    tokenizer.fit_surface(texts)
    return tokenizer


def imported(library):
    return Imported(Imported.Config(eos_id=library.token_to_id("</s>"), vocab_size=500), library)


FITTED = {str(settings): fitted(settings) for settings in SETTINGS}
IMPORTED = {build.__name__: imported(build()) for build in BUILDERS}
IDS = {"ids": IdTokenizer.make(vocab_size=3000, eos_id=7)}
EVERY = FITTED | IMPORTED | IDS
every = pytest.mark.parametrize("tokenizer", EVERY.values(), ids=EVERY.keys())
every_fitted = pytest.mark.parametrize("tokenizer", FITTED.values(), ids=FITTED.keys())
every_of_letters = pytest.mark.parametrize("tokenizer", (FITTED | IMPORTED).values(), ids=(FITTED | IMPORTED).keys())


def test_every_scheme_is_tested():
    assert {tokenizer.name for tokenizer in EVERY.values()} == set(TOKENIZERS)


@every_of_letters
@given(items=st.sets(st.sampled_from(ITEMS), min_size=3, max_size=3))
def test_probabilities_of_texts_do_not_sum_above_one(tokenizer, items):
    """Seen to fail where spaces, capitals, Unicode forms or a literal <unk> cost nothing."""
    assert_probabilities(tokenizer, items)


@every_of_letters
@given(
    text=st.one_of(
        st.text(), st.lists(st.sampled_from([*ITEMS, "\x00", "\u3000", "<unk><eos>", "x" * 99])).map("".join)
    )
)
def test_what_is_dropped_costs_something_finite(tokenizer, text):
    """Catches: words without pieces, texts that shrink to nothing."""
    assert 0 <= tokenizer.surface_nats(text) < math.inf


def test_long_gaps_are_not_kept_with_the_tokenizer():
    tokenizer = fitted({"type": "word"}, ["a" + " " * 10_000 + "b"] * 9)
    assert max(map(len, tokenizer.surface.counts["gap"])) < 20
    assert nats_of(tokenizer, ["a" + " " * 10_000 + "b"])[0] > 10_000


@every
def test_spaces_and_capitals_are_charged(tokenizer):
    """Catches: an unlucky choice of the items above."""
    assert_probabilities(tokenizer, [" ", "a", "A", "\n"] if tokenizer.name != "ids" else [" ", "1", "2", "\n"])


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@given(texts=st.lists(st.lists(st.sampled_from(ITEMS), max_size=6).map("".join), max_size=3))
def test_so_do_those_of_a_tokenizer_that_saw_no_such_text(settings, texts):
    tokenizer = train_tokenizer(settings, TEXTS)
    tokenizer.fit_surface(texts)
    assert_probabilities(tokenizer, [" ", "A", "s", "."])


@every_fitted
def test_what_a_tokenizer_keeps_is_free(tokenizer):
    """The usual spacing and form cost next to nothing."""
    usual = fitted(tokenizer.config.plain() | {"type": tokenizer.name}, ["the cat sat ."] * 2000)
    assert nats_of(usual, ["the cat sat ."])[0] == pytest.approx(0, abs=0.02)
    if usual.surface is None:
        assert nats_of(usual, ["THE  CAT "])[0] == pytest.approx(spelled("T") * len(usual.unknowns("THE  CAT ")))


def test_a_text_costs_more_with_wide_spaces_than_without():
    one, wide = nats_of(FITTED[str({"type": "word"})], ["the cat sat", "the          cat          sat"])
    assert wide > one + 2 * 10 * math.log(256)


def test_evaluation_and_scores_of_texts_agree(tmp_path):
    tokenizer = FITTED[str(SETTINGS[-1])]
    texts = [*TEXTS, "Dogs  don't", "THE cat"]
    documents = [Document(text, size=len(text.encode()) + 1) for text in texts]
    store = TokenStore.build(documents, tokenizer, tmp_path, "test")
    score = evaluate(Certain(), Documents(store, 2, 8, 0, shuffle=False), store.facts, "")
    assert score.nats == pytest.approx(sum(nats_of(tokenizer, texts)))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_saved_tokenizer_has_the_same_scores(settings, tmp_path):
    tokenizer = FITTED[str(settings)]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert nats_of(load_tokenizer(tmp_path / "tokenizer.json"), TEXTS) == nats_of(tokenizer, TEXTS)


def test_an_imported_tokenizer_that_keeps_all_is_free_and_one_that_adds_a_space_nearly():
    exact, spaced = (nats_of(IMPORTED[name], [TEXTS[0], TEXTS[1]]) for name in ("byte_level", "byte_fallback"))
    assert exact == [0, 0]
    assert spaced == pytest.approx([0, 0], abs=0.02)


def test_characters_that_are_exported_and_imported_keep_their_scores():
    own = FITTED[str({"type": "character", "min_frequency": 3})]
    again = Imported(Imported.Config(eos_id=own.eos_id), hf.Tokenizer.from_str(own.library.to_str()))
    assert nats_of(again, TEXTS) == nats_of(own, TEXTS)
    assert_probabilities(again, [" ", "a", "A", "<unk>"])


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
    ],
    ids=str,
)
def test_a_byte_level_tokenizer_that_changes_texts_is_charged(change):
    content = json.loads(BUILDERS[0]().to_str())
    assert_probabilities(imported(hf.Tokenizer.from_str(json.dumps(content | change))), [" ", "a", "A"])
