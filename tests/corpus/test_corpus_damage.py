"""Damaged, unusual and hostile files: each is an error with a remedy, or a counted repair."""

import errno
import gzip
import os
import random
import sys

import pytest

from elman.corpus import DataConfig, open_corpus, source_reader
from elman.errors import DataError, MissingExtra

ERRORS = {
    "empty file": ("a.txt", b"", r"a.txt: no documents for train: 1 . empty file"),
    "only a byte order mark": ("a.txt", b"\xef\xbb\xbf", r"no documents for train: 1 . byte order mark"),
    "UTF-16 with a mark": ("a.txt", "héllo\n".encode("utf-16"), r"UTF-16 or UTF-32 text \(convert it: iconv"),
    "UTF-16 without a mark": ("a.txt", "hello\n".encode("utf-16-be"), r"full of NUL bytes"),
    "zip": ("a.txt", b"PK\x03\x04 and so on", r"is a zip archive, not plain text"),
    "gzip unnamed": ("a.txt", gzip.compress(b"a"), r"gzip data without .gz in its name"),
    "truncated gzip": (
        "a.txt.gz",
        gzip.compress(random.Random(0).randbytes(9999).hex().encode())[:-50],
        r"damaged gzip",
    ),
    "not gzip": ("a.txt.gz", b"plain text", r"damaged gzip data after 0 bytes"),
    "damaged gzip": ("a.txt.gz", gzip.compress(b"a b c d e f\n" * 99)[:20] + b"\xff" * 30, r"damaged gzip"),
}


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("tokenizer", ["word", "char"])
def test_unreadable_files_are_errors_that_name_the_file(read, case, tokenizer):
    name, data, message = ERRORS[case]
    with pytest.raises(DataError, match=message) as caught:
        read(data, name, tokenizer)
    assert name in str(caught.value)


REPAIRS = {
    "byte order mark": (b"\xef\xbb\xbfa\nb\n", ["a", "b"], {"byte order mark": 1}, 1),
    "mark inside": ("a\n\ufeffb\n".encode(), ["a", "\ufeffb"], {}, 0),
    "invalid bytes": (b"a\nb\xff\xfec\nd\xe2\x82\n", ["a", "b\ufffd\ufffdc", "d\ufffd"], {"invalid UTF-8": 2}, 2),
    "cut at the end": (b"a\nb\xe2\x82", ["a", "b\ufffd"], {"invalid UTF-8": 1}, 2),
    "NUL": (b"abcdef\nb\0\0c\n", ["abcdef", "bc"], {"NUL byte": 1}, 2),
    "NUL between ends": (b"abcdef\r\0\nb", ["abcdef", "", "b"], {"NUL byte": 1}, 2),
}


@pytest.mark.parametrize("case", REPAIRS)
@pytest.mark.parametrize("chunk", [1, 2, 5, 2**18])
def test_repairs_are_counted_by_line(read, monkeypatch, case, chunk):
    monkeypatch.setattr(source_reader, "CHUNK", chunk)
    monkeypatch.setattr(source_reader, "NUL_SHARE", 1)
    data, texts, counts, line = REPAIRS[case]
    documents, corpus = read(data)
    assert [document.text for document in documents] == texts
    assert corpus.repairs.counts == counts
    assert all(place.endswith(f"a.txt, line {line}") for place in corpus.repairs.first.values())
    assert all(" × " in one and ", re" in one for one in corpus.repairs.describe())
    assert sum(document.size for document in documents) == len("\n".join(texts).encode()) + data.endswith(b"\n")
    whole, corpus = read(data, tokenizer="char")
    assert "".join(document.text for document in whole).removesuffix("\n") == "\n".join(texts)
    assert corpus.repairs.counts == counts
    assert all(place.endswith(f"a.txt, line {line}") for place in corpus.repairs.first.values())


@pytest.mark.parametrize(("data", "message"), [(b"a\nbc\xff", "line 2, column 3: invalid UTF-8"), (b"abcd\0", "NUL")])
def test_repairs_may_be_forbidden(read, data, message):
    with pytest.raises(DataError, match=message):
        read(data, invalid="error")


def test_a_gzip_bomb_is_stopped(read, monkeypatch):
    monkeypatch.setenv("ELMAN_LIMITS", "unpacked_bytes=1e5")
    monkeypatch.setattr(source_reader, "CHUNK", 10**4)
    with monkeypatch.context() as patch:
        patch.setattr(source_reader.SourceReader, "decode", None)  # it is found before any of its lines is read
        with pytest.raises(DataError, match="unpacks to more than 200 times its size"):
            read(gzip.compress(b"\n" * 3 * 10**5), "a.txt.gz")
    documents, _ = read(gzip.compress(b"\n" * 90_000), "a.txt.gz", "char")
    assert sum(document.size for document in documents) == 90_000


def test_missing_paths_are_errors(tmp_path):
    (tmp_path / "train.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    cases = {
        "trian.txt": r"no such file or folder \(did you mean 'train.txt'\?\)",
        "*.csv": "no file matches this pattern",
        "empty": "the folder contains no readable file",
        "emp*": "no file matches this pattern",
        "x" * 5000: "cannot be opened",
        "a\0b": "cannot be opened",
        "train.txt/b": "cannot be opened",
    }
    for place, message in cases.items():
        with pytest.raises(DataError, match=message):
            open_corpus(DataConfig(train=f"{tmp_path}/{place}"))
    with pytest.raises(DataError, match="is not a data set address"):
        open_corpus(DataConfig(train="hub:"))


def test_pipes_and_devices_are_rejected(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(DataError, match=r"a pipe or a device, .*use - to read a pipe"):
            open_corpus(DataConfig(train=str(place)))
    with pytest.raises(DataError, match="contains no readable file"):
        open_corpus(DataConfig(train=str(tmp_path)))


def test_file_that_vanishes_or_becomes_a_folder_is_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n")
    corpus = open_corpus(DataConfig(train=str(path), valid_fraction=0))
    path.unlink()
    for use in (lambda: list(corpus.documents("train")), lambda: corpus.fingerprint("train")):
        with pytest.raises(DataError, match="cannot be read: No such file"):
            use()
    path.mkdir()
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        list(corpus.documents("train"))


def test_a_file_without_permission_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("a")
    corpus = open_corpus(DataConfig(train=str(path), valid_fraction=0))

    def refuse(*arguments):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(type(path), "open", refuse)  # a file mode would not stop root
    with pytest.raises(DataError, match=r"a.txt: cannot be read: Permission denied"):
        list(corpus.documents("train"))


def test_a_missing_package_says_how_to_install_it(read, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"elman\[data\]"):
        read(b"", "a.parquet")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"elman\[data\]"):
        list(open_corpus(DataConfig(train=f"hub:{tmp_path}", valid_fraction=0)).documents("train"))
