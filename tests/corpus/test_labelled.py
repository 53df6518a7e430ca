"""Labelled texts round-trip in every format; errors name file and line."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.batches.examples import Buckets, ExampleStore
from elman.corpus import LabelledConfig, LabelledCorpus, LabelledText, LabelSet, Repairs, label_rows
from elman.corpus.labelled_corpus import CUT, UNSEEN
from elman.corpus.record_formats import no_header
from elman.errors import ConfigError, DataError

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=5)
PAIRS = st.lists(st.tuples(WORDS, st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)), min_size=1)


def as_csv(pairs, delimiter=",", header=True):
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerows([["text", "id", "label"]] * header + [[text, "7", label] for label, text in pairs])
    return file.getvalue().encode()


def as_jsonl(pairs):
    return "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in pairs).encode()


def as_parquet(pairs):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    file = io.BytesIO()
    labels, texts = ([pair[place] for pair in pairs] for place in (0, 1))
    write_table(pyarrow.table({"text": texts, "id": texts, "label": labels}), file)
    return file.getvalue()


@pytest.fixture(scope="session")
def read(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")

    def read(data: bytes, name: str, **settings) -> tuple[list[LabelledText], LabelledCorpus]:
        (folder / name).write_bytes(data)
        corpus = LabelledCorpus.open(train=str(folder / name), valid_fraction=0, **settings)
        return list(corpus.texts("train")), corpus

    return read


@pytest.mark.parametrize(("name", "write"), [("a.csv", as_csv), ("a.jsonl", as_jsonl), ("a.parquet", as_parquet)])
@given(pairs=PAIRS.filter(lambda pairs: any(text.strip() for _, text in pairs)))
def test_labels_and_texts_round_trip_in_every_format(read, name, write, pairs):
    """Catches label and text exchanged, and with empty texts kept."""
    texts, corpus = read(write(pairs), name)
    full = [((label,), text) for label, text in pairs if text.strip()]
    assert [(text.labels, text.text) for text in texts] == full
    assert corpus.repairs.counts["empty text"] == len(pairs) - len(full)


@pytest.mark.parametrize("header", ["sentence,label", "text,rating"])
def test_of_two_columns_one_may_have_another_name(read, header):
    """Catches the header read as a text, or its columns exchanged."""
    texts, corpus = read(f"{header}\na film,1\n".encode(), "a.csv")
    assert [(text.labels, text.text) for text in texts] == [(("1",), "a film")]
    other, usual = ("sentence", "text") if "sentence" in header else ("rating", "label")
    assert corpus.repairs.counts == {f"column {other!r} was used as {usual}": 1}


def test_headerless_two_column_table_has_its_label_first(read):
    """Catches the first row taken for a header."""
    texts, corpus = read(b'1\ta "fine" film\n\n0\ta dull one\n', "a.tsv")
    assert [(text.labels, text.text, text.line) for text in texts] == [
        (("1",), 'a "fine" film', 1),
        (("0",), "a dull one", 3),
    ]
    assert corpus.repairs.counts == {no_header("label", "text"): 1, "empty text": 1}


def test_columns_are_chosen_by_name_or_number(read):
    for rows, columns in ((b"review,stars,label\nfine,5,x\n", ["stars", "review"]), (b"fine,5,x\n", [2, 1])):
        (text,), corpus = read(rows, "a.csv", columns=columns)
        assert (text.labels, text.text) == (("5",), "fine")
        assert not corpus.repairs


def test_numbers_and_booleans_are_labels(read):
    texts, _ = read(b'{"label": 3, "text": "a"}\n{"label": true, "text": "b"}\n', "a.jsonl")
    assert [text.labels for text in texts] == [("3",), ("true",)]


def test_several_labels_by_separator_or_as_a_list(read):
    """Catches a label given twice counted twice."""
    texts, _ = read(b"label\ttext\nred, blue,red\ta\n\tb\n", "a.tsv", separator=",")
    assert [text.labels for text in texts] == [("red", "blue"), ()]
    texts, _ = read(b'{"label": ["red", "blue"], "text": "a"}\n{"label": [], "text": "b"}\n', "a.jsonl")
    assert [text.labels for text in texts] == [("red", "blue"), ()]


def test_a_folder_has_a_sub_folder_for_each_label(tmp_path):
    for name, text in {"neg/1.txt": "a dull\nfilm\n", "pos/deep/2.txt": "fine", "pos/3.txt": "\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    corpus = LabelledCorpus.open(train=str(tmp_path), valid_fraction=0)
    assert {(text.labels, text.text) for text in corpus.texts("train")} == {
        (("neg",), "a dull\nfilm"),
        (("pos",), "fine"),
    }
    assert corpus.repairs.counts == {"empty text": 1}
    assert "1 × empty text, left out (first: " in corpus.repairs.describe()[0]
    before = corpus.fingerprint("train")
    (tmp_path / "pos").rename(tmp_path / "positive")
    assert LabelledCorpus.open(train=str(tmp_path), valid_fraction=0).fingerprint("train") != before


def test_held_out_texts_are_chosen_by_content(read):
    pairs = [(str(number % 3), f"text {number % 50}") for number in range(200)]
    _, corpus = read(as_jsonl(pairs), "held.jsonl")
    corpus = LabelledCorpus(LabelledConfig.make({"train": corpus.config.train, "valid_fraction": 0.3}))
    train, valid = ({text.text for text in corpus.texts(split)} for split in ("train", "valid"))
    assert train
    assert valid
    assert not train & valid
    other = LabelledCorpus(corpus.config.model_copy(update={"separator": ";"}))
    assert other.fingerprint("train") != corpus.fingerprint("train") != corpus.fingerprint("valid")


WRONG = {
    "ragged": ("a.tsv", b"1\ta\n0\tb\tc\n", r"a\.tsv, line 2: 3 fields, but the first row has 2"),
    "half a header": ("a.tsv", b"sentence\tlabel\tid\na\t1\t2\n", r"a\.tsv, line 1, column 'text': no such column"),
    "three columns": ("a.csv", b"a,b,c\n", r"line 1, column 'label': no such column.*columns: 'a', 'b', 'c'"),
    "missing label": ("a.tsv", b"label\ttext\n1\ta\n \tb\n", r"a\.tsv, line 3, column 'label': missing label"),
    "null label": ("a.jsonl", b'{"label": null, "text": "a"}', r"line 1, column 'label': missing label"),
    "odd label": ("a.jsonl", b'{"label": 0.5, "text": "a"}', r"line 1, column 'label': is float '0.5'"),
    "odd text": ("a.jsonl", b'{"label": 1, "text": 5}', r"line 1, column 'text': is int '5', not text"),
    "plain text": ("a.txt", b"some text\n", r"has no label \(begin each"),
    "nothing": ("a.tsv", b"", r"no documents for train"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_file_and_line(read, case):
    name, data, message = WRONG[case]
    with pytest.raises(DataError, match=message):
        read(data, name)


def test_an_empty_part_among_several_labels_is_a_missing_label(read):
    with pytest.raises(DataError, match="line 2, column 'label': missing label"):
        read(b"label\ttext\na,,b\tc\n", "a.tsv", separator=",")


@pytest.mark.parametrize("columns", [["label"], ["label", 2], [0, 1], ["text", "text"]])
def test_two_columns_must_be_named(columns):
    with pytest.raises(ConfigError, match="columns"):
        LabelledConfig.make({"train": "a.tsv", "columns": columns}, where="data")


def texts_of(*labels: tuple[str, ...]) -> list[LabelledText]:
    return [LabelledText("a b c", "x.tsv", line, labels=given) for line, given in enumerate(labels, start=1)]


@given(st.lists(st.lists(WORDS, max_size=3, unique=True).map(tuple), min_size=1))
def test_label_ids_round_trip(tmp_path_factory, labels):
    """Catches the names in order of arrival and the counts sorted."""
    texts = texts_of(*labels)
    if len({*sum(labels, ())}) < (1 if any(len(given) != 1 for given in labels) else 2):
        with pytest.raises(DataError, match="nothing to classify"):
            LabelSet.of(texts)
        return
    known = LabelSet.of(texts)
    path = tmp_path_factory.mktemp("labels") / "labels.json"
    known.save(path)
    assert LabelSet.load(path) == known
    assert known.examples == len(texts)
    for text in texts:
        target = known.target(text)
        numbers = np.flatnonzero(target).tolist() if known.several else [target]
        assert {known.names[number] for number in numbers} == {*text.labels}
    for name, count in zip(known.names, known.counts, strict=True):
        assert count == sum(name in given for given in labels)


@pytest.mark.parametrize("content", ["", "[]", '{"names": ["a"], "counts": [], "examples": 1, "several": false}'])
def test_damaged_label_file_is_rejected(tmp_path, content):
    (tmp_path / "labels.json").write_text(content)
    with pytest.raises(DataError, match=r"damaged|not valid JSON"):
        LabelSet.load(tmp_path / "labels.json")
    with pytest.raises(DataError, match="cannot be read"):
        LabelSet.load(tmp_path / "none.json")


def encode(texts: list[str]) -> list[np.ndarray]:
    return [np.arange(len(text.split())) for text in texts]


def test_unseen_labels_are_errors_or_counted():
    known, unseen = LabelSet.of(texts_of(("good",), ("bad",))), texts_of(("bad",), ("goood",))
    with pytest.raises(
        DataError, match=r"x\.tsv, line 2: label 'goood' was not seen in training \(did you mean 'good'"
    ):
        list(label_rows(unseen, known, encode))
    repairs = Repairs()
    rows = list(label_rows(unseen, known, encode, unseen="count", repairs=repairs))
    assert [row["label"] for row in rows] == [0]
    assert repairs.counts == {UNSEEN: 1}
    with pytest.raises(DataError, match=r"x\.tsv, line 1: 2 labels, but each training text has one"):
        list(label_rows(texts_of(("good", "bad")), known, encode))


def test_long_texts_are_truncated_and_counted():
    known, repairs = LabelSet.of(texts_of(("good",), ("bad",))), Repairs()
    rows = list(label_rows(texts_of(("bad",)), known, encode, max_tokens=2, repairs=repairs))
    assert rows[0]["text"].tolist() == [0, 1]
    assert repairs.counts == {CUT: 1}


@pytest.mark.parametrize("several", [False, True])
def test_examples_are_collated_into_batches(tmp_path, several):
    texts = texts_of(("b",), ("a", "c") if several else ("a",), ("c",))
    known = LabelSet.of(texts)
    store = ExampleStore.build(label_rows(texts, known, encode), tmp_path, "train")
    (batch,) = Buckets(store, 3, by=("text",), shuffle=False).epoch(0)
    assert batch.ragged("text").values.tolist() == [[0, 1, 2]] * 3
    if several:
        assert batch.ragged("label").values.tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 1]]
    else:
        assert batch.plain("label").tolist() == [1, 0, 2]


def test_balanced_class_weights_equalize_labels():
    """Catches the weights turned upside down."""
    known = LabelSet.of(texts_of(*[("a",)] * 6, *[("b",)] * 3, ("c",)))
    weights = np.array(known.weights("balanced"))
    np.testing.assert_allclose(weights * known.counts, 10 / 3)
    several = LabelSet.of(texts_of(("a", "b"), ("a",), ("a",), ()))
    assert several.weights("balanced") == [1 / 3, 3.0]
    assert known.weights({"b": 2.0}) == [1.0, 2.0, 1.0]
    assert known.weights("none") is None
    with pytest.raises(ConfigError, match="no label 'd'"):
        known.weights({"d": 2.0})


def test_lines_of_fasttext_are_labelled_texts(read):
    """One label or several, wherever fastText finds them; blank lines are left out."""
    lines = "__label__good  A fine  film .\n\n__label__bad __label__long_one Dull .\r\nA __label__good one\n"
    texts, corpus = read(lines.encode(), "films.txt")
    assert [(text.labels, text.text, text.line) for text in texts] == [
        (("good",), "A fine  film .", 1),
        (("bad", "long_one"), "Dull .", 3),
        (("good",), "A one", 4),
    ]
    assert corpus.repairs.counts == {"empty text": 1}
    texts, _ = read(b"__label__2.5 some text\n", "rated.txt")
    assert texts[0].labels == ("2.5",)


@pytest.mark.parametrize("line", ["A film .", "x__label__good film", "__label__ film"])
def test_a_line_without_a_label_is_an_error_with_its_number(read, line):
    with pytest.raises(
        DataError, match=r"films.txt, line 2: the line of a text file has no label \(begin each with __l"
    ):
        read(f"__label__good A film .\n{line}\n".encode(), "films.txt")
