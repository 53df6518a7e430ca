"""The word order probe: only order determines labels; splits are disjoint."""

from collections import Counter

import pytest

from elman.corpus.synthetic.word_order import BAD, GOOD, word_order
from elman.errors import ConfigError, UnknownName


def test_the_sentences_of_a_pair_have_the_same_words_and_opposite_labels():
    """Catches a frame that left out what is denied."""
    sentences = word_order("test", 200)
    assert len({text.text for text in sentences}) == 400
    for one, other in zip(sentences[::2], sentences[1::2], strict=True):
        assert Counter(one.text.split()) == Counter(other.text.split())
        assert one.text != other.text
        assert (one.labels, other.labels) == (("positive",), ("negative",))


def test_labels_cannot_be_predicted_from_words_or_simple_order():
    """Else a model could pass without attaching "not" to the right word."""
    first = Counter()
    for text in word_order("train", 1000):
        words = text.text.split()
        good = next(place for place, word in enumerate(words) if word in GOOD)
        bad = next(place for place, word in enumerate(words) if word in BAD)
        first[(good < bad) == (text.labels == ("positive",))] += 1
    assert 0.3 < first[True] / first.total() < 0.7


def test_splits_are_disjoint_and_deterministic():
    splits = {split: word_order(split, 380) for split in ("train", "valid", "test")}
    assert len({text.text for texts in splits.values() for text in texts}) == 3 * 760
    assert splits["test"] == word_order("test", 380) != word_order("test", 380, seed=1)


def test_missing_splits_are_rejected():
    with pytest.raises(ConfigError, match="has 384 pairs, but 500 were requested"):
        word_order("test", 500)
    with pytest.raises(UnknownName, match="split"):
        word_order("tests")
