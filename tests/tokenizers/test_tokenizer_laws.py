"""Laws of every tokenizer, over all of Unicode."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from elman.errors import ConfigError, DataError, UnknownName
from elman.tokenizers import EOS, EOS_ID, TOKENIZERS, StreamDecoder, train_tokenizer
from elman.tokenizers.base import UNK, UNK_ID

SENTENCES = [
    "the cat sat on the mat .",
    "The dog, the DOG! saw <unk> ß İ ΣΑΣ",
    "naïve café 猫 😀 e\u0301 \u05d0\u05d1 <a>",
]
SETTINGS = [
    {"type": "byte"},
    {"type": "character"},
    {"type": "character", "min_frequency": 2},
    {"type": "character", "normalize": "nfc"},
    {"type": "character", "normalize": "nfd"},
    {"type": "word"},
    {"type": "word", "vocab_size": 8},
    {"type": "word", "lowercase": True},
    {"type": "word", "split": "punctuation"},
    {"type": "word", "lowercase": True, "split": "punctuation", "min_frequency": 2},
    {"type": "bpe", "vocab_size": 300},
]
TRAINED = {str(given_settings): train_tokenizer(given_settings, SENTENCES) for given_settings in SETTINGS}

FORMS = {  # the library's, as Python's tables may be of another version of Unicode
    "none": str,
    "nfc": normalizers.NFC().normalize_str,
    "nfd": normalizers.NFD().normalize_str,
}

patient = settings(deadline=None)
MARKS = [EOS, UNK, "<EOS>", "<eos", "x<eos>", "<unk><eos>", "'s", "Σ"]
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\x1c", "\x85", "\xa0", "\u2028", "\u3000"]
ODD = ["\x00", "\x1b", "\u200b", "\u200f", "\ufeff", "😀", "\U0010ffff", "e\u0301"]
pieces = st.sampled_from([*" ".join(SENTENCES).split(), *MARKS, *SPACES, *ODD])
texts = st.one_of(st.text(), st.lists(pieces).map("".join), st.lists(pieces).map(" ".join))
every = pytest.mark.parametrize("tokenizer", TRAINED.values(), ids=TRAINED.keys())


def of_type(*names):
    chosen = {key: tokenizer for key, tokenizer in TRAINED.items() if tokenizer.name in names}
    return pytest.mark.parametrize("tokenizer", chosen.values(), ids=chosen.keys())


def test_every_registered_scheme_is_tested():
    brought = {"imported", "ids"}  # these come with a model, and have their own laws
    assert {tokenizer.name for tokenizer in TRAINED.values()} == set(TOKENIZERS) - brought


@every
@patient
@given(text=texts)
def test_ids_are_in_range_and_never_the_boundary(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32
    assert all(EOS_ID < id < tokenizer.vocab_size for id in ids)


@every
@patient
@given(batch=st.lists(texts, max_size=4))
def test_batch_encoding_equals_single_encoding(tokenizer, batch):
    together = tokenizer.encode_batch(batch)
    assert [ids.tolist() for ids in together] == [tokenizer.encode(text).tolist() for text in batch]


@every
@patient
@given(text=texts)
def test_fast_path_equals_the_library(tokenizer, text):
    assert tokenizer.encode(text).tolist() == tokenizer.library.encode(text).ids


@of_type("byte", "bpe")
@patient
@given(text=texts)
def test_byte_level_schemes_are_lossless(tokenizer, text):
    assert tokenizer.lossless
    assert tokenizer.decode(tokenizer.encode(text)) == text


@patient
@given(text=texts.filter(bool))
def test_known_characters_are_lossless(text):
    tokenizer = train_tokenizer("character", [text])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unknowns(text) == []


@pytest.mark.parametrize("form", FORMS)
@patient
@given(text=texts.filter(bool))
def test_decoding_gives_the_normalized_text(form, text):
    tokenizer = train_tokenizer({"type": "character", "normalize": form}, [text])
    assert tokenizer.decode(tokenizer.encode(text)) == FORMS[form](text)
    assert tokenizer.encode(FORMS[form](text)).tolist() == tokenizer.encode(text).tolist()
    assert tokenizer.unknowns(text) == []


def test_nfd_splits_hangul_syllables_into_letters():
    tokenizer = train_tokenizer({"type": "character", "normalize": "nfd"}, ["각나"])
    assert [tokenizer.token(id) for id in tokenizer.encode("난")] == ["\u1102", "\u1161", UNK]
    assert tokenizer.unknowns("난") == ["\u11ab"]
    assert tokenizer.encode("낙").tolist() == tokenizer.encode("\u1102\u1161\u11a8").tolist()


@patient
@given(text=texts.filter(lambda text: set(text.split()) - {EOS, UNK}))
def test_known_words_round_trip_up_to_whitespace(text):
    tokenizer = train_tokenizer("word", [text])
    expected = [UNK if word == EOS else word for word in text.split()]
    assert tokenizer.decode(tokenizer.encode(text)) == " ".join(expected)


@of_type("word", "character")
@patient
@given(text=texts)
def test_unknowns_are_the_unknown_ids_that_the_text_does_not_spell_out(tokenizer, text):
    unknowns = tokenizer.unknowns(text)
    spelled_out = int((tokenizer.encode(text) == UNK_ID).sum()) - len(unknowns)
    assert UNK not in unknowns
    if tokenizer.name == "character":
        text = FORMS[tokenizer.config.normalize](text)
    assert all(unknown in text for unknown in unknowns)
    if tokenizer.name == "character":
        assert spelled_out == 0
    elif tokenizer.config.split == "punctuation":
        assert spelled_out == text.count(UNK)
    else:
        assert spelled_out == text.split().count(UNK)


@every
@patient
@given(data=st.data())
def test_streamed_text_is_the_decoded_text(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    decoder = StreamDecoder(tokenizer)
    for _ in range(2):  # a flushed decoder begins anew
        assert "".join([*map(decoder.push, ids), decoder.flush()]) == tokenizer.decode(ids)


@of_type("byte", "bpe")
@patient
@given(text=texts)
def test_streaming_never_emits_partial_characters(tokenizer, text):
    decoder, shown = StreamDecoder(tokenizer), ""
    for id in tokenizer.encode(text):
        shown += decoder.push(int(id))
        assert text.startswith(shown)
    assert shown == text


@every
def test_tokens_and_ids_are_inverse(tokenizer):
    assert [tokenizer.id(tokenizer.token(id)) for id in range(tokenizer.vocab_size)] == list(
        range(tokenizer.vocab_size)
    )
    assert tokenizer.token(tokenizer.eos_id) == EOS
    assert tokenizer.eos_id == 0
    assert tokenizer.id("no such token") is None
    if tokenizer.unk_id is not None:
        assert (tokenizer.unk_id, tokenizer.token(1)) == (1, UNK)


@pytest.mark.parametrize("chosen", SETTINGS, ids=str)
@settings(max_examples=10, deadline=None)
@given(order=st.permutations(SENTENCES * 2))
def test_training_depends_on_the_texts_but_not_on_their_order(chosen, order):
    again = train_tokenizer(chosen, iter(order)).library.to_str()
    assert again == train_tokenizer(chosen, SENTENCES * 2).library.to_str()


def test_words_are_ranked_by_frequency_then_text_and_cut_to_size():
    texts = ["b b a a c <unk> <eos> <eos>", "d"]
    assert list(words(train_tokenizer("word", texts))) == [EOS, UNK, "a", "b", "c", "d"]
    assert list(words(train_tokenizer({"type": "word", "vocab_size": 5}, texts))) == [EOS, UNK, "a", "b", "c"]
    assert list(words(train_tokenizer({"type": "word", "min_frequency": 2}, texts))) == [EOS, UNK, "a", "b"]


def test_a_literal_unknown_word_is_the_unknown_id_and_a_literal_boundary_is_an_unknown_word():
    """However text is split. Catches: the boundary spelled as its last character."""
    for more in ({}, {"lowercase": True}, {"split": "punctuation"}, {"split": "punctuation", "lowercase": True}):
        tokenizer = train_tokenizer({"type": "word", **more}, ["a <eos>"])
        assert tokenizer.encode("a <unk> <eos> b").tolist() == [2, 1, 1, 1]
        assert tokenizer.unknowns("a <unk> <eos> b") == [EOS, "b"]
        if tokenizer.config.lowercase:
            assert tokenizer.unknowns("<EOS> <UNK>") == ["<EOS>", "<UNK>"]


def test_punctuation_and_case_can_be_set():
    tokenizer = train_tokenizer({"type": "word", "split": "punctuation", "lowercase": True}, ["Don't say <unk>, no!"])
    assert set(words(tokenizer)) == {EOS, UNK, "don", "'", "t", "say", ",", "no", "!"}
    assert tokenizer.decode(tokenizer.encode("DON'T, <unk>, go")) == "don ' t , <unk> , <unk>"
    assert tokenizer.unknowns("DON'T, <unk>, Go") == ["Go"]


def test_bpe_respects_the_vocabulary_size_and_compresses_text():
    text = "the cat and the hat and the bat " * 20
    tokenizer = train_tokenizer({"type": "bpe", "vocab_size": 280}, [text])
    assert 257 < tokenizer.vocab_size <= 280
    assert len(tokenizer.encode(text)) < len(text) / 2


@pytest.mark.parametrize(
    "wrong", [{}, {"type": 3}, {"type": "word", "vocab_size": 2}, {"type": "bpe", "vocab_size": 256}]
)
def test_errors_for_invalid_settings_have_a_reason(wrong):
    with pytest.raises(ConfigError):
        train_tokenizer(wrong, ["a"])


def test_an_unknown_scheme_names_the_known_ones():
    with pytest.raises(UnknownName, match=r"did you mean 'word'.*bpe, byte, character, ids, imported, word"):
        train_tokenizer("words", ["a"])


@pytest.mark.parametrize("scheme", ["word", "character"])
def test_no_text_gives_no_vocabulary(scheme):
    with pytest.raises(DataError, match="empty vocabulary"):
        train_tokenizer(scheme, ["", ""])


@pytest.mark.parametrize("scheme", ["word", "character", "bpe"])
def test_lone_surrogates_are_rejected_in_training(scheme):
    with pytest.raises(DataError, match="surrogate"):
        train_tokenizer(scheme, ["a \ud800"])


@every
def test_lone_surrogates_are_rejected_or_unknown(tokenizer):
    try:
        assert tokenizer.encode("\ud800").tolist() == [UNK_ID]
    except DataError as error:
        assert "surrogate" in str(error)  # noqa: PT017


def words(tokenizer):
    return (tokenizer.token(id) for id in range(tokenizer.vocab_size))
