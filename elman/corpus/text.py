"""Text files: lines as in a text editor (ended by \\n, \\r\\n or \\r only), and lines, blocks or files as documents."""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import NamedTuple

from elman.corpus.config import Record, Table
from elman.corpus.document import Document
from elman.corpus.source_reader import SourceReader

BOM = b"\xef\xbb\xbf"
SPACE_WITHIN = 1024  # long lines are split after a space within this distance, if there is one
PIECE_BYTES = 2**20  # chunk size of a file that is one document
PASSAGE_BYTES, PASSAGE_LINES = 2**16, 64  # unit of holding out parts of such a file
PASSAGES = 20  # minimum number of passages in small files
LEAST_BYTES, PARTS = 2**10, 100  # of a file of few lines: the least passage, and their number


class Line(NamedTuple):
    """The bytes of a line without its terminator; `size` includes it."""

    raw: bytes
    size: int
    number: int
    end: bytes  # its terminator, empty at the end of a file
    cut: bool  # part of a line longer than the limit, continued by the next one

    @property
    def ended(self) -> bool:
        return bool(self.end)


def lines(reader: SourceReader, limit: int) -> Iterator[Line]:
    """All lines, without byte order mark; lines of more than `limit` bytes are yielded in parts, split between
    characters."""
    number, first = 1, True
    for piece, cut in _split(reader.chunks(), limit):
        raw = piece
        if first and raw.startswith(BOM):
            reader.repair("byte order mark", 1)
            raw = raw[len(BOM) :]
            if not raw:
                reader.repair("empty file")
                return
        first = False
        content = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1] if raw.endswith((b"\n", b"\r")) else raw
        yield Line(content, len(piece), number, raw[len(content) :], cut)
        number += not cut


def whole_lines(reader: SourceReader) -> Iterator[Line]:
    """Complete lines; a line longer than `max_record_bytes` is an error."""
    limit = reader.config.max_record_bytes
    for line in lines(reader, limit):
        if line.cut:
            remedy = "raise data.max_record_bytes; for text, data.document: file supports lines of any length"
            raise reader.error(f"the line is longer than {limit} bytes", line.number, remedy=remedy)
        yield line


def _split(chunks: Iterable[bytes], limit: int) -> Iterator[tuple[bytes, bool]]:
    """Lines with their terminators, and whether each was split."""
    pending: list[bytes] = []  # parts of an incomplete line
    size = 0
    for chunk in chunks:
        pending.append(chunk)
        size += len(chunk)
        half_ended = len(pending) > 1 and pending[-2].endswith(b"\r")
        if size <= limit and not half_ended and b"\n" not in chunk and b"\r" not in chunk:
            continue
        parts = b"".join(pending).splitlines(keepends=True)
        last = b"" if parts[-1].endswith(b"\n") else parts.pop()  # \r may be followed by \n
        for part in parts:
            yield (yield from _cut(part, limit)) if len(part) > limit else part, False
        if not last.endswith(b"\r"):
            last = yield from _cut(last, limit)
        pending, size = ([last], len(last)) if last else ([], 0)
    if pending:
        yield (yield from _cut(b"".join(pending), limit)), False


def _cut(line: bytes, limit: int) -> Generator[tuple[bytes, bool], None, bytes]:
    """Yields all parts of a line but the last, which it returns."""
    while len(line) > limit:
        at = _boundary(line, limit)
        yield line[:at], True
        line = line[at:]
    return line


def _boundary(line: bytes, limit: int) -> int:
    """The last position up to `limit` where the line can be split: after a space, else before a character."""
    space = line.rfind(b" ", max(0, limit - SPACE_WITHIN), limit)
    if space >= 0:
        return space + 1
    if line[limit - 1 : limit + 1] == b"\r\n":
        return limit - 1
    starts = (at for at in range(limit, limit - 4, -1) if line[at] & 0xC0 != 0x80)
    return next(starts, limit)


def line_documents(reader: SourceReader) -> Iterator[Document]:
    for line in whole_lines(reader):
        text = reader.decode(line.raw, line.number)
        ended = line.ended or not text  # an empty line has at least its end
        yield Document(text, reader.source.name, line.number, len(text.encode()) + ended)


def text_table(reader: SourceReader, name: str) -> Table:
    """Each line as a record of one field."""
    lines = whole_lines(reader)
    return Table((name,), (Record((name,), (reader.decode(line.raw, line.number),), line.number) for line in lines))


def block_documents(reader: SourceReader) -> Iterator[Document]:
    """Of the blank lines between two blocks one is counted in the size of the first."""
    limit = reader.config.max_record_bytes
    block: list[str] = []
    start, held, size, ended = 0, 0, 0, False  # size: of the text as read
    for line in whole_lines(reader):
        text = reader.decode(line.raw, line.number)
        blank = not text.strip()
        if ended and not blank:
            yield Document("\n".join(block), reader.source.name, start, size + 1)
            block, held, size, ended = [], 0, 0, False
        if blank:
            ended = bool(block)
            continue
        start = start if block else line.number
        block.append(text)
        size += len(text.encode()) + line.ended
        held += line.size
        if held > limit:
            raise reader.error(f"the block is longer than {limit} bytes", start, remedy="raise data.max_record_bytes")
    if block:
        yield Document("\n".join(block), reader.source.name, start, size)


class Passage(NamedTuple):
    """The most lines and bytes of a part of a file that is held out or not."""

    lines: int
    bytes: int


def file_documents(reader: SourceReader, passage: Passage | None = None) -> Iterator[Document]:
    """One document in chunks that keep their newlines (as \\n); these are passages if that is given."""
    pieces = chain(_pieces(reader, passage), [None])
    for piece, following in pairwise(pieces):
        assert piece is not None
        yield replace(piece, continues=True) if following else piece


def _pieces(reader: SourceReader, passage: Passage | None) -> Iterator[Document]:
    limit = passage.bytes if passage else PIECE_BYTES
    pending: list[Line] = []
    size = 0
    for line in lines(reader, limit):
        pending.append(line)
        size += line.size
        if size >= limit or (passage and len(pending) == passage.lines):
            yield _piece(reader, pending)
            pending, size = [], 0
    if pending:
        yield _piece(reader, pending)


def _piece(reader: SourceReader, pending: list[Line]) -> Document:
    raw = b"".join(line.raw + b"\n" if line.ended else line.raw for line in pending)
    first = pending[0].number
    text = reader.decode(raw, first)
    return Document(text, reader.source.name, first, len(text.encode()))


def passage_of(readers: Iterable[SourceReader]) -> Passage:
    """The passages of these files: fewer lines if they are small, and parts of lines if they have few."""
    found = chain.from_iterable(lines(reader, PASSAGE_BYTES) for reader in readers)
    first = [line.size for line in islice(found, PASSAGES * PASSAGE_LINES)]
    size = sum(first) // PARTS if len(first) < PASSAGES else PASSAGE_BYTES
    return Passage(max(1, len(first) // PASSAGES), max(LEAST_BYTES, size))
