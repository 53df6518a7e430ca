"""Tables with separators: comma-separated (csv, with quotes) and tab-separated (tsv, without)."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from elman.corpus.document import Repairs
from elman.corpus.formats import RECORD_FORMATS, Column, Fields, RecordFormat, require_column
from elman.corpus.lines import whole_lines
from elman.corpus.source_reader import SourceReader


@RECORD_FORMATS.register("csv")
class CommaSeparated(RecordFormat):
    """Comma-separated values with a header row, or without one if columns are numbers."""

    suffixes = (".csv",)
    delimited = True

    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        width, indices = 0, list[int]()
        for row, line in _Rows(reader).rows():
            if not row:
                yield (None,) * len(columns), line
                continue
            if width == 0:
                width, indices = len(row), [_index(reader, row, column, line) for column in columns]
                if any(isinstance(column, str) for column in columns):
                    continue
            if len(row) != width:
                raise reader.error(f"{len(row)} fields, but the first row has {width}", line)
            yield tuple(row[index] for index in indices), line


@RECORD_FORMATS.register("tsv")
class TabSeparated(CommaSeparated):
    """Tab-separated values; a quote is an ordinary character."""

    suffixes = (".tsv",)


def columns_without_header(reader: SourceReader, first: str, second: str) -> list[Column]:
    """The usual column names; for a delimited table of two columns without them, the numbers 1 and 2."""
    if RECORD_FORMATS[reader.source.format].delimited:
        row = next((row for row, _ in _Rows(SourceReader(reader.source, reader.config, Repairs())).rows() if row), [])
        names = [name.strip().lower() for name in row]
        if len(names) == 2 and not {*names} & {first, second}:
            reader.repair(no_header(first, second))
            return [1, 2]
    return [first, second]


def no_header(first: str, second: str) -> str:
    """The remark about a table of two columns whose first row has none of the usual names."""
    used = f"column 1 was used as {first}, column 2 as {second}"
    return f"table without a header: {used}; if its first row is one, name its columns with --columns"


def _index(reader: SourceReader, row: list[str], column: Column, line: int) -> int:
    if isinstance(column, str):
        names = [name.strip() for name in row]
        return names.index(require_column(reader, names, column, line))
    if column > len(row):
        raise reader.error(f"the table has {len(row)} columns", line, column)
    return column - 1


class _Rows:
    """Rows of fields with their first line; a row may not be longer than `max_record_bytes`."""

    def __init__(self, reader: SourceReader):
        self.reader, self.start, self.size = reader, 1, 0

    def rows(self) -> Iterator[tuple[list[str], int]]:
        tabs = self.reader.source.format == "tsv"
        style: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
        rows = csv.reader(self._lines(), **style)
        while True:
            self.size = 0
            try:
                row = _next_row(rows, self.reader.config.max_record_bytes)
            except csv.Error as error:
                remedy = "a quote may be missing; inside a quoted field it is written twice"
                raise self.reader.error(f"not a valid table: {error}", self.start, remedy=remedy) from None
            if row is None:
                return
            yield row, self.start
            self.start = rows.line_num + 1

    def _lines(self) -> Iterator[str]:
        for line in whole_lines(self.reader):
            self.size += line.size
            if self.size > self.reader.config.max_record_bytes:
                raise self.reader.too_long(self.start, " (is a quote never closed?)")
            yield self.reader.decode(line.raw, line.number) + "\n"


def _next_row(rows: Iterable[list[str]], limit: int) -> list[str] | None:
    before = csv.field_size_limit(limit + 1)  # a process-wide setting, changed for this row only
    try:
        return next(iter(rows), None)
    finally:
        csv.field_size_limit(before)
