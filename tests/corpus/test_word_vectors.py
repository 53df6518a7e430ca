"""Word vectors are read exactly as they are written, from every format; damage is one sentence with its line."""

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.corpus.word_vectors import read_vectors, vector_width
from elman.errors import DataError

WORDS = ["the", "Paris", "naïve", "東京", "...", "0.5", "\u00a0", "e\u0301"]
dice = np.random.default_rng(0)
VECTORS = dice.normal(size=(len(WORDS), 50)).astype(np.float32)


def glove(words=WORDS, vectors=VECTORS, end="\n", first=""):
    """As the programs that made them print: GloVe %lf, word2vec and fastText with a first line and a last space."""
    rows = zip(words, vectors.tolist(), strict=True)
    return (first + "".join(f"{word} {' '.join(map(repr, row))}{end}" for word, row in rows)).encode()


def word2vec(words=WORDS, vectors=VECTORS):
    return glove(words, vectors, end=" \n", first=f"{len(words)} {vectors.shape[1]}\n")


def binary(words=WORDS, vectors=VECTORS, end=b"\n"):
    head = f"{len(words)} {vectors.shape[1]}\n".encode()
    rows = zip(words, vectors, strict=True)
    return head + b"".join(word.encode() + b" " + row.astype("<f4").tobytes() + end for word, row in rows)


FORMATS = {
    "glove.txt": glove(),
    "spaces.txt": glove([*WORDS, "new york"], np.vstack([VECTORS, VECTORS[:1]])),
    "windows.txt": b"\xef\xbb\xbf" + glove(end="\r\n"),
    "no_last_newline.txt": glove()[:-1],
    "fasttext.vec": word2vec(),
    "word2vec.txt.gz": gzip.compress(word2vec()),
    "word2vec.bin": binary(),
    "gensim.bin": binary(end=b""),
    "google.bin.gz": gzip.compress(binary()),
}


@pytest.fixture
def file(tmp_path):
    def write(content: bytes, name: str = "vectors.txt") -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", FORMATS)
def test_every_number_is_that_of_the_file(file, name):
    path = file(FORMATS[name], name)
    words = [*reversed(WORDS), "unheard"]
    read = read_vectors(path, words)
    assert vector_width(path) == 50
    assert read.values.dtype == np.float32
    assert (read.values[:-1] == VECTORS[::-1]).all()
    assert read.found.tolist() == [True] * len(WORDS) + [False]
    assert not read.values[-1].any()
    assert read.exact == len(WORDS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gensim leaves a file open
@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "binary", "glove"])
def test_files_of_gensim_are_read_as_gensim_reads_them(tmp_path, form):
    models = pytest.importorskip("gensim.models")
    path = str(tmp_path / "vectors.bin")
    written = models.KeyedVectors(vector_size=50)
    written.add_vectors(WORDS, VECTORS)
    written.save_word2vec_format(path, binary=form == "binary", write_header=form != "glove")
    again = models.KeyedVectors.load_word2vec_format(path, binary=form == "binary", no_header=form == "glove")
    read = read_vectors(path, WORDS)
    assert read.found.all()
    assert (read.values == np.array([again[word] for word in WORDS])).all()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
@pytest.mark.parametrize("write", [word2vec, binary])
def test_any_finite_number_is_exact(tmp_path_factory, write, numbers):
    path = tmp_path_factory.getbasetemp() / f"any.{write.__name__}"
    vectors = np.array([numbers, numbers[::-1]], dtype=np.float32)
    path.write_bytes(write(["a", "b"], vectors))
    assert (read_vectors(path, ["a", "b"]).values == vectors).all()


def test_a_word_in_another_case_is_taken_where_its_own_is_missing(file):
    """The first line wins, since files are sorted by frequency; an exact one wins over those before it."""
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    path = file(glove(["US", "us", "Paris", "PARIS"], vectors))
    read = read_vectors(path, ["us", "paris", "Us", "PARIS", "london"])
    assert read.values[:, 0].tolist() == [2, 4, 0, 6, 0]
    assert read.found.tolist() == [True, True, True, True, False]
    assert read.exact == 2


def test_of_a_word_that_is_there_twice_the_first_is_taken(file):
    path = file(glove(["a", "b", "a"], np.arange(6, dtype=np.float32).reshape(3, 2)))
    assert read_vectors(path, ["a"]).values.tolist() == [[0, 1]]


THREE = b"3 2\na 0.1 0.2\nb 0.3 0.4\nc 0.5 0.6\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "line 1: not word vectors"),
        (b"\n\n", "line 1: not word vectors"),
        (b"Once upon a time\n", "line 1: not word vectors"),
        (b"word\n" * 9, "line 1: not word vectors"),
        (b"3 0\na\nb\nc\n", "line 1: not word vectors"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0", "is a model of fastText or gensim"),
        (b"\x80\x04\x95", "is a model of fastText or gensim"),
        (b"PK\x03\x04", "is a zip archive"),
        ("a 0.1\n".encode("utf-16"), "UTF-16"),
        (THREE.replace(b" 0.4", b""), "line 3: has 1 numbers, not 2"),
        (THREE.replace(b"0.4", b"0,4"), "line 3: could not convert string to float: '0,4'"),
        (THREE.replace(b"0.4", b"nan"), "line 3: vector 2 has a number that is not finite"),
        (THREE.replace(b"0.4", b"1e39"), "line 3: vector 2 has a number that is not finite"),
        (THREE.replace(b"c 0.5 0.6\n", b""), "line 1: has 2 vectors, but its first line says 3"),
        (THREE + b"d 0.7 0.8\n", "line 1: has 4 vectors, but its first line says 3"),
        (THREE[4:].replace(b" 0.4", b""), "line 2: has 1 numbers, not 2"),
        (binary()[:-30], "ends within vector 8"),
        (binary()[: len(binary()) // 2], "ends within vector 4"),
        (binary(vectors=VECTORS * np.float32(np.inf)), "vector 1 has a number that is not finite"),
        (b"1000000000000000 2\na 0.1 0.2\n", "line 1: has 1 vectors, but its first line says 1,000,000,000,000,000"),
        (b"1 999999999999\na 0.1 0.2\n", "has 999999999999 numbers, but at most"),
        (gzip.compress(THREE, mtime=0)[:-9], "damaged gzip data"),
    ],
)
def test_damage_is_one_sentence(file, content, reason):
    """Catches a file that is read in part, or as something that it is not."""
    path = file(content, "v.gz" if content[:2] == b"\x1f\x8b" else "vectors.txt")
    with pytest.raises(DataError) as caught:
        read_vectors(path, ["a", "b", "c", *WORDS])
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_endless_lines_are_not_kept_in_memory(file):
    """A first row of 64 MB: read in pieces, and given up."""
    path = file(b"1 3\n" + b"x" * 2**26)
    tracemalloc.start()
    with pytest.raises(DataError, match="line 2: vector 1 is longer than"):
        read_vectors(path, ["a"])
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


@pytest.mark.parametrize("place", [".", "hub:any/vectors", "-", "no/such.vec"])
def test_what_is_no_file_is_one_sentence(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    with pytest.raises(DataError):
        vector_width(place)
