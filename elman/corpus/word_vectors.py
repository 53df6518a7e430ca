"""Reads pretrained word vectors: of GloVe, of word2vec in both its forms, and fastText's .vec files.

    GloVe               word, space, numbers, newline
    word2vec, fastText  count, space, width, newline; then rows as in GloVe
    word2vec, binary    the same first line; then: word, space, width × float32, and from some writers a newline

Files are streamed, and only the rows of chosen words are parsed and kept: a file may be larger than memory.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.corpus.config import TEXT, DataConfig
from elman.corpus.document import Repairs
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import locate
from elman.errors import DataError
from elman.limits import check_limit

FIRST_LINE = re.compile(rb"(\d{1,18}) (\d{1,18}) ?\r?\n")
PRINTABLE = bytes([9, 10, 13, *range(32, 127)])  # float32 numbers in binary almost surely have other bytes too
FLOAT = np.dtype("<f4")
LONGEST = 2**23  # bytes of a row
MODELS = (b"\xba\x16\x4f\x2f", b"\x80")  # first bytes of fastText's models, and of Python pickles
AGAIN = "download or write the file again"


class WordVectors(NamedTuple):
    """Vectors of some words."""

    values: NDArray[np.float32]  # (words, width); zeros where there is none
    found: NDArray[np.bool_]  # (words,)
    exact: int
    """How many were found as they are written; the others differ by case."""


def vector_width(path: str | Path) -> int:
    """How many numbers each vector of a file has."""
    return _VectorFile(path).width


def read_vectors(path: str | Path, words: Sequence[str]) -> WordVectors:
    """The vectors of these words: that of a word as it is written, else the first one that differs by case only."""
    file = _VectorFile(path)
    wanted: dict[str, list[int]] = {}
    for row, word in enumerate(words):
        wanted.setdefault(word.lower(), []).append(row)
    values = np.zeros((len(words), file.width), dtype=np.float32)
    found, exact = np.zeros(len(words), dtype=bool), np.zeros(len(words), dtype=bool)
    for spelled, numbers in file.rows():
        word = spelled.decode(errors="replace")
        for row in wanted.get(word.lower(), ()):
            same = words[row] == word
            if not found[row] or (same and not exact[row]):
                values[row], found[row], exact[row] = file.parse(numbers), True, same
    return WordVectors(values, found, int(exact.sum()))


class _VectorFile:
    """A file whose beginning says how the rest is to be read."""

    def __init__(self, path: str | Path):
        sources = locate(str(path), TEXT)
        if len(sources) != 1 or sources[0].format != TEXT:
            raise DataError("is not one file of word vectors", file=path)
        self.reader = SourceReader(sources[0], DataConfig(), Repairs(), binary=True)
        chunks = self.reader.chunks()
        head = next(chunks, b"").removeprefix(b"\xef\xbb\xbf")
        while b"\n" not in head and len(head) < LONGEST and (more := next(chunks, b"")):
            head += more
        if head.startswith(MODELS):
            raise self._error("is a model of fastText or gensim", remedy="give its vectors: .vec, or word2vec format")
        told = FIRST_LINE.match(head)
        self.count = int(told[1]) if told else None
        head = head[told.end() :] if told else head
        self.chunks = chain([head], chunks)
        self.number, self.lines_before = 0, bool(told)  # rows read
        first = _trimmed(head.partition(b"\n")[0])
        self.width = int(told[2]) if told else first.count(b" ")
        check_limit("width", self.width, f"{path}: each vector has {self.width} numbers", DataError)
        after = head.partition(b" ")[2][: FLOAT.itemsize * self.width]
        self.binary = bool(told) and bool(after.translate(None, PRINTABLE))
        if not self.width or not (told or _is_row(first)):
            remedy = "in files of GloVe, word2vec and fastText each line is a word and its numbers"
            raise self._error("not word vectors", 1, remedy)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """All words with their numbers as they are written, in the order of the file."""
        for row in self._binary_rows() if self.binary else self._text_rows():
            self.number += 1
            yield row
        if self.count not in (None, self.number):
            reason = f"has {self.number:,} vectors, but its first line says {self.count:,}"
            raise self._error(reason, 1)

    def parse(self, numbers: bytes) -> NDArray[np.float32]:
        """The vector of the row that was read last."""
        try:
            vector = np.frombuffer(numbers, FLOAT) if self.binary else _parsed(numbers)
        except ValueError as error:
            raise self._error(str(error), self._line) from None
        if not np.isfinite(vector).all():
            raise self._error(f"vector {self.number:,} has a number that is not finite", self._line)
        return vector

    def _text_rows(self) -> Iterator[tuple[bytes, bytes]]:
        rest = b""
        for chunk in self.chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield self._split(line)
            self._check_length(rest)
        if rest:
            yield self._split(rest)

    def _split(self, line: bytes) -> tuple[bytes, bytes]:
        """A word, which may contain spaces, and its numbers."""
        line = _trimmed(line)
        spaces = line.count(b" ")
        if spaces < self.width:
            self.number += 1
            raise self._error(f"has {spaces} numbers, not {self.width} as the lines before", self._line)
        word = line.partition(b" ")[0] if spaces == self.width else line.rsplit(b" ", self.width)[0]
        return word, line[len(word) + 1 :]

    def _binary_rows(self) -> Iterator[tuple[bytes, bytes]]:
        size, rest = FLOAT.itemsize * self.width, b""
        for chunk in self.chunks:
            rest, place = rest + chunk, 0
            while (end := rest.find(b" ", place)) >= 0 and end + size < len(rest):
                yield rest[place:end].lstrip(b"\n"), rest[end + 1 : end + 1 + size]
                place = end + 1 + size
            rest = rest[place:]
            self._check_length(rest)
        if rest.strip(b"\n"):
            raise self._error(f"ends within vector {self.number + 1:,}")

    def _check_length(self, rest: bytes) -> None:
        if len(rest) > LONGEST:
            self.number += 1
            raise self._error(f"vector {self.number:,} is longer than {LONGEST} bytes", self._line)

    @property
    def _line(self) -> int | None:
        """Of the row that was read last; binary files have none."""
        return None if self.binary else self.lines_before + self.number

    def _error(self, reason: str, line: int | None = None, remedy: str = AGAIN) -> DataError:
        return self.reader.error(reason, line, remedy=remedy)


def _trimmed(line: bytes) -> bytes:
    """Without the space that word2vec and fastText write after the last number."""
    return line.rstrip(b" \r")


def _parsed(numbers: bytes) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # too large for float32: infinity, which is rejected
        return np.array([float(number) for number in numbers.decode(errors="replace").split(" ")], dtype=np.float32)


def _is_row(line: bytes) -> bool:
    try:
        return len(_parsed(line.partition(b" ")[2])) > 0
    except ValueError:
        return False
