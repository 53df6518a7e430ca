"""Detects tables among lines that are to be read as texts."""

import csv
import re
from collections.abc import Collection, Iterator
from itertools import islice

from elman.corpus.config import Record
from elman.corpus.source_reader import SourceReader
from elman.errors import DataError

SEPARATORS = {",": "csv", ";": "csv", "\t": "tsv"}
OPEN_CELL = re.compile(r'(^|,)"([^"]|"")*$')
CELL_LINES = 32  # lines that a cell may go over


def reject_tables(reader: SourceReader, lines: Iterator[Record], columns: Collection[str]) -> Iterator[Record]:
    """The same lines; an error if the first one names one of these columns of a table, or if a cell of as many columns
    as the first line has goes over several lines."""
    first = next(lines, None)
    if first is None:
        return
    for separator, form in SEPARATORS.items():
        names = {name.strip(' "') for name in first.values[0].split(separator)}
        if len(names) > 1 and names & {*columns}:
            raise _is_table(reader, f"has names of columns, {', '.join(sorted(names & {*columns}))!r}", first, form)
    yield first
    width = _cells([first])
    for line in lines:
        row = [line]
        if width > 1 and OPEN_CELL.search(line.values[0]):
            for part in islice(lines, CELL_LINES):
                row.append(part)
                if part.values[0].count('"') % 2:
                    break
            if len(row) > 1 and _cells(row) == width:
                raise _is_table(reader, "begins a cell that ends on a later line", line, "csv")
        yield from row


def _cells(lines: list[Record]) -> int:
    """Number of cells of one row of a table, 0 if it is none; a comma and a space are in texts."""
    try:
        rows = list(csv.reader([f"{line.values[0]}\n" for line in lines], strict=True))
    except csv.Error:
        return 0
    return len(rows[0]) if len(rows) == 1 and not any(cell.startswith(" ") for cell in rows[0]) else 0


def _is_table(reader: SourceReader, reason: str, line: Record, form: str) -> DataError:
    remedy = f"read a table with --from {form}; --from text answers each line"
    return reader.error(f"the line {reason}", line.line, remedy=remedy)
