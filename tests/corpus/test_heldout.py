"""Held-out splits: test data are never in the training data."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.corpus import DataConfig, Document, LabelledCorpus, LabelledText, TaggedCorpus, open_corpus
from elman.corpus.hash_split import FEW, KEPT, HashSplit, hash_position, make_hash_split
from elman.errors import DataError

LINES = st.lists(st.text("abc ", max_size=3), min_size=1, max_size=60)
FRACTIONS = st.sampled_from([(0.1, 0.0), (0.1, 0.1), (0.0, 0.3), (0.5, 0.4), (0.001, 0.001)])


def corpus_of(path, data: bytes, tokenizer: str = "word", **settings):
    path.write_bytes(data)
    return open_corpus(DataConfig(train=str(path), **settings), tokenizer)


def texts(corpus, split) -> list[str]:
    return [document.text for document in corpus.documents(split)]


@pytest.mark.parametrize("boundary", ["carry", "reset"])
@given(lines=LINES, fractions=FRACTIONS)
def test_splits_share_no_line_and_together_are_the_file(tmp_path_factory, boundary, lines, fractions):
    valid, test = fractions
    path = tmp_path_factory.mktemp("held", numbered=True) / "a.txt"
    data = "\n".join(lines).encode() + b"\n"
    corpus = corpus_of(path, data, valid_fraction=valid, test_fraction=test, boundary=boundary)
    different = {line.strip() for line in lines} - {""}
    if len(different) < len(corpus.splits()):
        with pytest.raises(DataError, match=r"too few|no text"):
            texts(corpus, "train")
        return
    found = {split: texts(corpus, split) for split in corpus.splits()}
    units = [{text.strip() for text in part} for part in found.values()]
    assert all(units)
    assert sum(map(len, units)) == len(set().union(*units))
    expected = [line for line in lines if boundary == "carry" or line.strip()]
    assert sorted(text for part in found.values() for text in part) == sorted(expected)
    assert sum(document.size for split in found for document in corpus.documents(split)) == sum(
        len(line) + 1 for line in expected
    )


def test_splits_are_stable_when_files_are_reordered_or_extended(tmp_path):
    lines = [f"line {number}" for number in range(500)]
    first = corpus_of(tmp_path / "a.txt", "\n".join(lines).encode())
    random.Random(0).shuffle(lines)
    second = corpus_of(tmp_path / "b.txt", "\n".join([*lines, "one more", "and more"]).encode())
    assert set(texts(first, "valid")) == set(texts(second, "valid")) - {"one more", "and more"}
    assert 25 < len(texts(first, "valid")) < 80


def test_split_hashes_are_platform_independent():
    assert hash_position("held out") == hash_position(" held out \n") == pytest.approx(0.4294041950815388)
    assert hash_position(" ") is None


def test_a_novel_in_one_file_gives_passages_with_boundaries_only_at_gaps(tmp_path):
    lines = [f"sentence {number}\n" for number in range(6400)]
    corpus = corpus_of(tmp_path / "a.txt", "".join(lines).encode(), "char", test_fraction=0.1)
    seen = []
    for split in corpus.splits():
        documents = list(corpus.documents(split))
        assert len(documents) >= 2
        assert not documents[-1].continues
        for document, following in pairwise(documents):
            assert document.continues == (following.line == document.line + 64)
        seen += documents
    assert "".join(document.text for document in sorted(seen, key=lambda document: document.line)) == "".join(lines)


def test_a_small_file_is_held_out_in_single_lines(tmp_path):
    corpus = corpus_of(tmp_path / "a.txt", b"one\ntwo\nthree\n", "char")
    assert len(texts(corpus, "valid")) == 1
    assert sorted(texts(corpus, "train") + texts(corpus, "valid")) == ["one\n", "three\n", "two\n"]


def test_small_files_are_held_out_as_a_whole(tmp_path):
    for number in range(100):
        (tmp_path / f"{number}.txt").write_text(f"review {number}\n" * 20)
    corpus = open_corpus(DataConfig(train=str(tmp_path)), "char")
    assert all(document.text.count("\n") == 20 for split in corpus.splits() for document in corpus.documents(split))


def test_a_file_of_one_endless_line_is_held_out_in_passages(tmp_path):
    corpus = corpus_of(tmp_path / "a.txt", b"".join(b"word%d " % number for number in range(300_000)), "char")
    valid, train = texts(corpus, "valid"), texts(corpus, "train")
    assert valid
    assert not set(valid) & set(train)


@pytest.mark.parametrize("lines", [1, 3, 15])
def test_a_tenth_of_a_file_of_few_long_lines_is_held_out(tmp_path, lines):
    """Catches passages of 64 KB, of which a file of 391 KB has six."""
    content = "".join(f"{'line ' if number else ''}word{number} " for number in range(40_000))
    breaks = [len(content) * part // lines for part in range(1, lines)]
    for place in reversed(breaks):
        content = content[:place] + "\n" + content[place:]
    corpus = corpus_of(tmp_path / "a.txt", content.encode(), "char")
    held_out = sum(map(len, texts(corpus, "valid")))
    assert 0.05 < held_out / len(content) < 0.15
    assert held_out + sum(map(len, texts(corpus, "train"))) == len(content)


@pytest.mark.parametrize(("valid", "test"), [(1e-9, 0.0), (0.0, 1e-9), (1e-9, 1e-9), (0.3, 1e-9)])
def test_with_many_units_a_split_left_empty_takes_just_one(valid, test):
    units = [Document(f"unit {number}") for number in range(FEW * 2)]
    held_out = make_hash_split(units, valid, test, "here")
    counts = {split: len(list(held_out.only(split, units))) for split in ("valid", "test")}
    assert counts["test"] == bool(test)
    assert counts["valid"] == (bool(valid) if valid < 0.1 else pytest.approx(0.3 * len(units), rel=0.2))


@pytest.mark.parametrize("count", [3, 4, 5])
def test_with_few_units_no_split_stays_empty(count):
    for number in range(50):
        units = [Document(f"{number} {unit}") for unit in range(count)]
        held_out = make_hash_split(units, 0.5, 0.4, "here")
        assert {held_out.split(unit) for unit in units} == {"train", "valid", "test"}


def test_too_little_text_to_hold_out_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"too few to hold some out \(set data.valid"):
        texts(corpus_of(tmp_path / "a.txt", b"same\nsame\n"), "train")


def test_given_splits_are_not_changed(tmp_path):
    (tmp_path / "valid.txt").write_text("v\n" * 5)
    corpus = corpus_of(tmp_path / "a.txt", b"".join(b"%d\n" % n for n in range(99)), valid=str(tmp_path / "valid.txt"))
    assert corpus.splits() == ["train", "valid"]
    assert len(texts(corpus, "train")) == 99
    assert texts(corpus, "valid") == ["v"] * 5


def named_corpus(folder, kind, count=200):
    """Texts with one of two labels (or tags), and thirty names that occur once each."""
    names = [f"rare{number}" for number in range(30)] + ["a", "b"] * count
    write = {"classify": "{1}\tsome text {0}\n", "tag": "some\tO\ntext\tO\n{0}\t{1}\n\n"}[kind]
    path = folder / {"classify": "a.tsv", "tag": "a.conll"}[kind]
    head = "label\ttext\n" if kind == "classify" else ""
    path.write_text(head + "".join(write.format(number, name) for number, name in enumerate(names)))
    return {"classify": LabelledCorpus, "tag": TaggedCorpus}[kind].open(train=str(path), test_fraction=0.1)


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_training_has_every_label_and_tag(tmp_path, kind):
    """Catches: nothing kept; also those kept whose names training has; those kept counted in their split alone."""
    corpus = named_corpus(tmp_path, kind)
    found = {split: list(corpus.documents(split)) for split in corpus.splits()}
    names = {split: {name for one in documents for name in corpus.names(one)} for split, documents in found.items()}
    assert names["valid"] | names["test"] <= names["train"]
    assert {"a", "b"} <= names["valid"] & names["test"]
    rare = [one for one in found["train"] if {*corpus.names(one)} & {f"rare{number}" for number in range(30)}]
    natural = HashSplit(0.1, 0.9)
    kept = [one for one in rare if natural.split(one) != "train"]
    assert 0 < len(kept) < 30
    assert corpus.repairs.counts[KEPT] == len(kept)
    assert sum(map(len, found.values())) == 430


def test_kept_example_of_a_name_does_not_depend_on_order():
    """Catches: the last one that is read kept."""
    units = [LabelledText(f"text {number}", labels=("a",)) for number in range(40)]
    natural = HashSplit(0.1, 0.9)
    lost = [replace(unit, labels=("b",)) if natural.split(unit) != "train" else unit for unit in units]
    one, other = (natural.keeping(order, lambda unit: unit.labels) for order in (lost, lost[::-1]))
    assert one == other
    assert len(one.kept) == 1
    twice = [*lost, replace(next(unit for unit in lost if hash_position(unit.text) in one.kept), labels=("a",))]
    assert one.split(twice[-1]) == "train"  # equal texts never part


def test_unique_labels_cannot_be_held_out(tmp_path):
    """Catches: an error without what would work."""
    (tmp_path / "a.tsv").write_text("label\ttext\n" + "".join(f"{n}\ttext {n}\n" for n in range(40)))
    corpus = LabelledCorpus.open(train=str(tmp_path / "a.tsv"))
    with pytest.raises(
        DataError, match=r"no documents for valid: \d+ × kept in training.*set data.valid to a separate file"
    ):
        list(corpus.texts("valid"))
