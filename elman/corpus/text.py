"""Text files as documents: each line, each block between blank lines, or the file in consecutive pieces."""

from collections.abc import Iterator
from dataclasses import replace

from elman.corpus.document import Document
from elman.corpus.lines import Line, lines, whole_lines
from elman.corpus.source_reader import SourceReader

PIECE_BYTES = 2**20  # of a file that is one document: what is held in memory at a time
PASSAGE_BYTES, PASSAGE_LINES = 2**16, 64  # of such a file when a part of it is held out
PASSAGES = 20  # aimed at where there is little text


def line_documents(reading: SourceReader) -> Iterator[Document]:
    for line in whole_lines(reading):
        yield Document(reading.decode(line.raw, line.number), reading.source.name, line.number, line.size)


def block_documents(reading: SourceReader) -> Iterator[Document]:
    """Blank lines belong to the block before them, those that open the file to the first block."""
    limit = reading.config.max_record_bytes
    block: list[str] = []
    start, held, size, ended = 0, 0, 0, False
    for line in whole_lines(reading):
        text = reading.decode(line.raw, line.number)
        blank = not text.strip()
        if ended and not blank:
            yield Document("\n".join(block), reading.source.name, start, size)
            block, held, size, ended = [], 0, 0, False
        size += line.size
        if blank:
            ended = bool(block)
            continue
        start = start if block else line.number
        block.append(text)
        held += line.size
        if held > limit:
            raise reading.error(f"the block is longer than {limit} bytes", start, remedy="raise data.max_record_bytes")
    if block:
        yield Document("\n".join(block), reading.source.name, start, size)


def file_documents(reading: SourceReader, max_lines: int | None = None) -> Iterator[Document]:
    """One document in pieces that keep their newlines (all written \\n); passages of `max_lines` lines if given."""
    limit = PASSAGE_BYTES if max_lines else PIECE_BYTES
    gathered: list[Line] = []
    size = 0
    waiting: Document | None = None
    for line in lines(reading, limit):
        gathered.append(line)
        size += line.size
        if size >= limit or len(gathered) == max_lines:
            if waiting:
                yield replace(waiting, continues=True)
            waiting = _piece(reading, gathered)
            gathered, size = [], 0
    if gathered:
        if waiting:
            yield replace(waiting, continues=True)
        waiting = _piece(reading, gathered)
    if waiting:
        yield waiting


def _piece(reading: SourceReader, gathered: list[Line]) -> Document:
    raw = b"".join(line.raw + b"\n" if line.ended else line.raw for line in gathered)
    first = gathered[0].number
    return Document(reading.decode(raw, first), reading.source.name, first, sum(line.size for line in gathered))


def count_lines(reading: SourceReader, enough: int) -> int:
    """The lines of a file (parts of very long ones), counted no further than needed."""
    count = 0
    for count, _ in enumerate(lines(reading, PASSAGE_BYTES), start=1):
        if count >= enough:
            break
    return count
