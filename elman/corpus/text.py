"""Text files as documents: lines, blocks between blank lines, or the file in chunks."""

from collections.abc import Iterator
from dataclasses import replace

from elman.corpus.document import Document
from elman.corpus.lines import Line, lines, whole_lines
from elman.corpus.source_reader import SourceReader

PIECE_BYTES = 2**20  # chunk size of a file that is one document
PASSAGE_BYTES, PASSAGE_LINES = 2**16, 64  # unit of holding out parts of such a file
PASSAGES = 20  # minimum number of passages in small files


def line_documents(reader: SourceReader) -> Iterator[Document]:
    for line in whole_lines(reader):
        yield Document(reader.decode(line.raw, line.number), reader.source.name, line.number, line.size)


def block_documents(reader: SourceReader) -> Iterator[Document]:
    """Blank lines belong to the previous block, those at the start of the file to the first block."""
    limit = reader.config.max_record_bytes
    block: list[str] = []
    start, held, size, ended = 0, 0, 0, False
    for line in whole_lines(reader):
        text = reader.decode(line.raw, line.number)
        blank = not text.strip()
        if ended and not blank:
            yield Document("\n".join(block), reader.source.name, start, size)
            block, held, size, ended = [], 0, 0, False
        size += line.size
        if blank:
            ended = bool(block)
            continue
        start = start if block else line.number
        block.append(text)
        held += line.size
        if held > limit:
            raise reader.error(f"the block is longer than {limit} bytes", start, remedy="raise data.max_record_bytes")
    if block:
        yield Document("\n".join(block), reader.source.name, start, size)


def file_documents(reader: SourceReader, max_lines: int | None = None) -> Iterator[Document]:
    """One document in chunks that keep their newlines (as \\n); chunks of `max_lines` lines if given."""
    limit = PASSAGE_BYTES if max_lines else PIECE_BYTES
    pending: list[Line] = []
    size = 0
    previous: Document | None = None
    for line in lines(reader, limit):
        pending.append(line)
        size += line.size
        if size >= limit or len(pending) == max_lines:
            if previous:
                yield replace(previous, continues=True)
            previous = _piece(reader, pending)
            pending, size = [], 0
    if pending:
        if previous:
            yield replace(previous, continues=True)
        previous = _piece(reader, pending)
    if previous:
        yield previous


def _piece(reader: SourceReader, pending: list[Line]) -> Document:
    raw = b"".join(line.raw + b"\n" if line.ended else line.raw for line in pending)
    first = pending[0].number
    return Document(reader.decode(raw, first), reader.source.name, first, sum(line.size for line in pending))


def count_lines(reader: SourceReader, enough: int) -> int:
    """Number of lines of a file, at most `enough`."""
    count = 0
    for count, _ in enumerate(lines(reader, PASSAGE_BYTES), start=1):
        if count >= enough:
            break
    return count
