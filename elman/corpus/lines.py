"""Lines as a text editor counts them: ended by \\n, \\r\\n or \\r, and by nothing else."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from elman.corpus.source_reader import SourceReader

BOM = b"\xef\xbb\xbf"
SPACE_WITHIN = 1024  # a line that must be cut is cut after a space, if one is this near


class Line(NamedTuple):
    """The bytes of a line without its end; `size` counts all bytes it takes in the source."""

    raw: bytes
    size: int
    number: int
    ended: bool  # false for the last line of a file that does not end in a newline
    cut: bool  # longer than the limit: the same line goes on in the next one of these


def lines(reading: SourceReader, limit: int) -> Iterator[Line]:
    """All lines, without a byte order mark; one of more than `limit` bytes comes in parts, cut between characters."""
    number, first = 1, True
    for whole, cut in _split(reading.chunks(), limit):
        raw = whole
        if first and raw.startswith(BOM):
            reading.repair("byte order mark", 1)
            raw = raw[len(BOM) :]
            if not raw:
                reading.repair("empty file")
                return
        first = False
        content = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1] if raw.endswith((b"\n", b"\r")) else raw
        yield Line(content, len(whole), number, len(content) < len(raw), cut)
        number += not cut


def whole_lines(reading: SourceReader) -> Iterator[Line]:
    """Lines for readers to whom half a line is of no use: one beyond `max_record_bytes` is an error."""
    limit = reading.config.max_record_bytes
    for line in lines(reading, limit):
        if line.cut:
            remedy = "raise data.max_record_bytes; of text, data.document: file takes lines of any length"
            raise reading.error(f"the line is longer than {limit} bytes", line.number, remedy=remedy)
        yield line


def _split(chunks: Iterable[bytes], limit: int) -> Iterator[tuple[bytes, bool]]:
    """Lines with their ends, and whether each was cut."""
    waiting: list[bytes] = []  # a line whose end has not come yet
    size = 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        half_ended = len(waiting) > 1 and waiting[-2].endswith(b"\r")
        if size <= limit and not half_ended and b"\n" not in chunk and b"\r" not in chunk:
            continue
        parts = b"".join(waiting).splitlines(keepends=True)
        last = b"" if parts[-1].endswith(b"\n") else parts.pop()  # \r may yet become \r\n
        for part in parts:
            yield from _cut(part, limit) if len(part) > limit else ((part, False),)
        while len(last) > limit and not last.endswith(b"\r"):
            at = _boundary(last, limit)
            yield last[:at], True
            last = last[at:]
        waiting, size = ([last], len(last)) if last else ([], 0)
    if waiting:
        yield from _cut(b"".join(waiting), limit)


def _cut(line: bytes, limit: int) -> Iterator[tuple[bytes, bool]]:
    while len(line) > limit:
        at = _boundary(line, limit)
        yield line[:at], True
        line = line[at:]
    yield line, False


def _boundary(line: bytes, limit: int) -> int:
    """The last place up to `limit` where the line may be cut: after a space, else before a character."""
    space = line.rfind(b" ", max(0, limit - SPACE_WITHIN), limit)
    if space >= 0:
        return space + 1
    if line[limit - 1 : limit + 1] == b"\r\n":
        return limit - 1
    starts = (at for at in range(limit, limit - 4, -1) if line[at] & 0xC0 != 0x80)
    return next(starts, limit)
