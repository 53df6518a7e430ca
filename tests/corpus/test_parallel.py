"""Sentence pairs from tables and parallel files; errors for those that do not match."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.corpus.document import Repairs
from elman.corpus.pair_corpus import NOISE, Pair, noisy_reversals, random_words, read_pairs
from elman.errors import DataError

PAIRS = [("ein Hund", "a dog"), ("zwei Katzen, laut", "two cats, loud"), ("drei", "three")]


def write(folder: Path, kind: str) -> tuple[Any, dict[str, Any]]:
    """The file, and how it is to be read."""
    path = folder / f"pairs.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps({"target": b, "more": 1, "source": a}) + "\n" for a, b in PAIRS))
    elif kind == "csv":
        path.write_text("target,source\n" + "".join(f'"{b}","{a}"\n' for a, b in PAIRS))
    elif kind == "tsv":
        path.write_text("".join(f"{b}\tx\t{a}\n" for a, b in PAIRS))
        return str(path), {"columns": (3, 1)}
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"de": [a for a, _ in PAIRS], "en": [b for _, b in PAIRS]}), path)
        return str(path), {"columns": ("de", "en")}
    return str(path), {}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_two_columns_are_pairs(tmp_path: Path, kind: str) -> None:
    """Catches: the columns changed places; the header given as a pair."""
    place, how = write(tmp_path, kind)
    found = list(read_pairs(place, **how))
    assert [(pair.source_text, pair.target_text) for pair in found] == PAIRS
    assert {pair.source for pair in found} == {place}
    assert [pair.line for pair in found] == [line + (kind == "csv") for line in (1, 2, 3)]


def test_lines_of_two_files_are_pairs_zipped_or_not(tmp_path: Path) -> None:
    one, other = tmp_path / "x.de", tmp_path / "x.en.gz"
    one.write_text("\n".join(a for a, _ in PAIRS))
    other.write_bytes(gzip.compress("".join(f"{b}\r\n" for _, b in PAIRS).encode()))
    found = list(read_pairs(str(one), str(other)))
    assert found == [Pair(a, b, str(one), line) for line, (a, b) in enumerate(PAIRS, start=1)]


def test_several_files_are_paired_in_their_order(tmp_path: Path) -> None:
    for name in ("1.de", "2.de", "1.en", "2.en"):
        (tmp_path / name).write_text(f"{name}\n")
    found = list(read_pairs(str(tmp_path / "*.de"), str(tmp_path / "*.en")))
    assert [(pair.source_text, pair.target_text) for pair in found] == [("1.de", "1.en"), ("2.de", "2.en")]
    with pytest.raises(DataError, match=r"2 source files .* but 1 target files"):
        list(read_pairs(str(tmp_path / "*.de"), str(tmp_path / "1.en")))


@given(sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_files_of_unequal_length_are_rejected_with_both_counts(
    sizes: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whichever is longer. Catches: the shorter one decided; counts up to the first missing line."""
    folder = tmp_path_factory.mktemp("pairs")
    one, other = folder / "a", folder / "b"
    one.write_text("x\n" * sizes[0])
    other.write_text("y\n" * sizes[1])
    if sizes[0] == sizes[1]:
        assert len(list(read_pairs(str(one), str(other)))) == sizes[0]
        return
    with pytest.raises(DataError, match=rf"a, line {min(sizes) + 1}: {sizes[0]} lines, but {sizes[1]} targets in .*b"):
        list(read_pairs(str(one), str(other)))


def test_an_empty_side_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("source\ttarget\none\t\n\ttwo\nthree\tdrei\n \t \n\nfour\t\n")
    repairs = Repairs()
    assert [pair.line for pair in read_pairs(str(path), repairs=repairs)] == [4]
    assert repairs.counts == {
        "pair removed: empty target": 2,
        "pair removed: empty source": 1,
        "pair removed: empty source and target": 2,
    }
    assert repairs.first["pair removed: empty target"] == f"{path}, line 2"


def test_repairs_of_a_line_count_once_though_it_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"\xef\xbb\xbfsource\ttarget\none\xff\teins\ntwo\tz\0wei\n")
    repairs = Repairs()
    assert [pair[:2] for pair in read_pairs(str(path), repairs=repairs)] == [("one\ufffd", "eins"), ("two", "zwei")]
    assert repairs.counts == {"byte order mark": 1, "invalid UTF-8": 1, "NUL byte": 1}


@pytest.mark.parametrize(
    ("content", "name", "complaint"),
    [
        ("source\ttarget\na\tb\nc\n", "x.tsv", "line 3: 1 fields, but the first row has 2"),
        ("source\ttarged\na\tb\n", "x.tsv", "'target'.*did you mean 'targed'"),
        ('{"source": "a"}\n', "x.jsonl", "line 1, column 'target': no such column"),
        ('{"source": "a", "target": 3}\n', "x.jsonl", "line 1.*is int '3', not text"),
        ("a b\n", "x.txt", "no columns for source and target"),
    ],
)
def test_invalid_pairs_are_rejected_with_file_and_line(tmp_path: Path, content: str, name: str, complaint: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=complaint):
        list(read_pairs(str(tmp_path / name)))


@given(st.lists(st.text("abcdef", max_size=8), max_size=5), st.floats(0, 1), st.integers(0, 99))
def test_noisy_reversal_has_the_true_alignment(words: list[str], noise: float, seed: int) -> None:
    """Catches: places counted without the noise."""
    for word, (source, target, places) in zip(words, noisy_reversals(words, noise, seed), strict=True):
        assert target == word[::-1] == "".join(source[place] for place in places)
        assert "".join(sign for sign in source if sign not in NOISE) == word
    assert list(noisy_reversals(words, noise, seed)) == list(noisy_reversals(words, noise, seed))
    assert all(source == word for word, (source, _, _) in zip(words, noisy_reversals(words, 0.0), strict=True))


def test_random_words_have_the_lengths_that_were_asked_for() -> None:
    assert {len(word) for word in random_words(200, "xy", 2, 4)} == {2, 3, 4}
