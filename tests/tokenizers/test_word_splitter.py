"""Raw sentences are split into words as Unicode says, and as training data splits them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.tokenizers.word_splitter import is_split, split_words

CASES = {
    "A cat, a dog.": "A cat , a dog .",
    '"Why?!" (he asked)...': '" Why ? ! " ( he asked ) ...',
    "$1,234.50 (5%) at 10:30": "$ 1,234.50 ( 5 % ) at 10:30",
    "O’Neil can't e.g. a_b": "O’Neil can't e.g . a_b",
    "e\u0301te\u0301 नमस्ते, สวัสดี": "e\u0301te\u0301 नमस्ते , สวัสดี",
    "東京に行くカタカナ。": "東 京 に 行 く カタカナ 。",
    "👩‍👩‍👧 👍🏽!": "👩‍👩‍👧 👍🏽 !",
    "one\u00a0two\u3000three \t four": "one two three four",
    "": "",
    " \t": "",
}


@pytest.mark.parametrize("text", CASES)
def test_unicode_rules(text):
    assert split_words(text, lambda word: False) == CASES[text].split()


def test_words_of_training_stay_whole_and_their_apostrophes_are_split_off():
    known = {"mr.", "u.s.", "n't", "'s", "l'", "e-mail", "cannot"}
    text = "Mr. Smith's e-mail: \"the U.S., l'eau\" didn't, cannot re-send."
    expected = "Mr. Smith 's e-mail : \" the U.S. , l' eau \" did n't , cannot re - send ."
    assert split_words(text, lambda word: word.lower() in known) == expected.split()


@given(st.text(), st.sets(st.text(min_size=1, max_size=3)))
def test_no_character_but_space_is_lost(text, known):
    words = split_words(text, known.__contains__)
    assert "".join(words) == "".join(text.split())
    assert all(words)
    assert split_words(text, lambda word: True) == text.split()


def test_long_strings_take_no_time():
    assert len(split_words("a-" * 20_000, lambda word: False)) == 40_000


@pytest.mark.parametrize("text", ["A cat .", "`` Yes , '' he said", "What ?"])
def test_punctuation_that_stands_alone_says_that_words_are_split(text):
    assert is_split(text)


@pytest.mark.parametrize("text", ["A cat.", '"Yes," he said', "No punctuation", "A - B & C", ""])
def test_raw_text(text):
    assert not is_split(text)
