"""Corpus statistics against a count by hand."""

import json
import statistics
from collections import Counter

from elman.corpus import DataConfig, describe, description, open_corpus

TRAIN = "the cat sat on the mat\n\na dog ran\nthe end é\n"
VALID = "the bird sat\nthe dog flew away\n"


def described(tmp_path, tokenizer="word", **settings):
    (tmp_path / "train.txt").write_text(TRAIN)
    (tmp_path / "valid.txt").write_text(VALID)
    config = DataConfig(train=str(tmp_path / "train.txt"), valid=str(tmp_path / "valid.txt"), **settings)
    return describe(open_corpus(config, tokenizer))


def test_statistics_equal_a_count_by_hand(tmp_path):
    found = described(tmp_path)
    train, words = found.splits["train"], Counter(TRAIN.split())
    lengths = [len(line.split()) for line in TRAIN.splitlines()]
    assert (found.unit, found.carry, list(found.splits)) == ("line", True, ["train", "valid"])
    assert (train.documents, train.bytes, train.words) == (4, len(TRAIN.encode()), words.total())
    assert train.characters == len(TRAIN.replace("\n", ""))
    assert (train.mean_length, train.longest) == (statistics.mean(lengths), max(lengths))
    assert train.median_length == statistics.median_low(lengths)
    assert (train.distinct_words, train.words_seen_once) == (len(words), sum(n == 1 for n in words.values()))
    assert train.all_words_counted
    assert train.unseen_in_train is None
    assert found.splits["valid"].unseen_in_train == 3 / 7
    assert json.loads(json.dumps(found.plain()))["splits"]["valid"]["documents"] == 2


def test_pieces_of_a_file_are_one_document(tmp_path, monkeypatch):
    monkeypatch.setattr("elman.corpus.text.PIECE_BYTES", 16)
    train = described(tmp_path, "char").splits["train"]
    assert (train.documents, train.longest, train.words) == (1, 12, 12)


def test_repairs_are_reported(tmp_path):
    assert "empty document" in described(tmp_path, boundary="reset").splits["train"].repairs[0]


def test_vocabulary_above_the_limit_is_marked_incomplete(tmp_path, monkeypatch):
    monkeypatch.setattr(description, "MAX_TYPES", 5)
    found = described(tmp_path)
    assert not found.splits["train"].all_words_counted
    assert found.splits["train"].words == 12
    assert found.splits["valid"].unseen_in_train is None
