"""Records by their columns: JSON lines, tables with commas or tabs, parquet, the hub; of one column, as documents."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from elman.corpus.document import Document
from elman.corpus.lines import whole_lines
from elman.corpus.source_reader import SourceReader
from elman.corpus.tables import read_hub, read_parquet, require_column
from elman.errors import DataError

Column = str | int  # a name; in a table without a header, a number counted from 1
Fields = Iterator[tuple[tuple[Any, ...], int]]  # what the chosen columns of each record hold, and the record's line


def record_documents(reading: SourceReader) -> Iterator[Document]:
    """A record's size is that of its text as a line of UTF-8, so that scores compare across formats."""
    column = reading.config.column
    for (value,), line in read_columns(reading, [column]):
        text = as_text(reading, value, line, column)
        yield Document(text, reading.source.name, line, len(text.encode()) + 1 if text.strip() else 0)


def read_columns(reading: SourceReader, columns: Sequence[Column]) -> Fields:
    """The chosen columns of every record, in the order asked for; an empty line gives None for each."""
    readers: dict[str, Callable[[SourceReader, Sequence[Column]], Fields]] = {
        "jsonl": read_jsonl,
        "csv": read_csv,
        "tsv": read_csv,
        "parquet": read_parquet,
        "hub": read_hub,
    }
    return readers[reading.source.format](reading, columns)


def as_text(reading: SourceReader, value: Any, line: int, column: Column) -> str:
    """A value that must be text, mended where it has to be; nothing is empty text."""
    if isinstance(value, bytes):
        text = reading.mend(value, line)
    elif isinstance(value, str):
        text = reading.clean(value, line)
    elif value is None:
        text = ""
    else:
        raise reading.error(f"holds {type(value).__name__} {str(value)[:40]!r}, not text", line, column)
    if text.strip() and len(text.encode()) >= reading.config.max_record_bytes:
        raise _too_long(reading, line)
    return text


def read_jsonl(reading: SourceReader, columns: Sequence[Column]) -> Fields:
    for line in whole_lines(reading):
        text = reading.decode(line.raw, line.number)
        if not text.strip():
            yield (None,) * len(columns), line.number
            continue
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise _not_json(reading, f"not valid JSON: {error.msg}", line.number, error.colno) from None
        except RecursionError:
            raise _not_json(reading, "JSON nested too deeply", line.number) from None
        except ValueError as error:  # numbers of thousands of digits
            raise _not_json(reading, f"JSON that cannot be read: {error}", line.number) from None
        if not isinstance(record, dict):
            raise _not_json(reading, f"a JSON {type(record).__name__}, not an object", line.number)
        yield tuple(record[require_column(reading, record, column, line.number)] for column in columns), line.number


def read_csv(reading: SourceReader, columns: Sequence[Column]) -> Fields:
    """Tables with a header, or without one if columns are numbers. In tsv, a quote is a character like others."""
    table = _Table(reading)
    width, places = 0, list[int]()
    for row, line in table.rows():
        if not row:
            yield (None,) * len(columns), line
            continue
        if width == 0:
            width, places = len(row), [_place(reading, row, column, line) for column in columns]
            if any(isinstance(column, str) for column in columns):
                continue
        if len(row) != width:
            raise reading.error(f"{len(row)} fields where the first row has {width}", line)
        yield tuple(row[place] for place in places), line


def first_row(reading: SourceReader) -> list[str]:
    """What a table begins with, a header or not; nothing if it is empty."""
    return next((row for row, _ in _Table(reading).rows() if row), [])


def no_header(first: str, second: str) -> str:
    """What is said of a table of two columns whose first row has none of the usual names."""
    taken = f"column 1 was taken for the {first}, column 2 for the {second}"
    return f"table without a header: {taken}; if its first row is one, name its columns with --columns"


def two_columns(columns: list[Column] | None, first: str, second: str) -> list[Column] | None:
    """Settings that name a column for each of two things, if they do."""
    if columns is None:
        return None
    if len(columns) != 2 or len({type(column) for column in columns}) != 1 or columns[0] == columns[1]:
        raise ValueError(f"name two columns, that of {first} and that of {second}, or give the numbers of both")
    if any(isinstance(column, int) and column < 1 for column in columns):
        raise ValueError("columns are counted from 1")
    return columns


def _place(reading: SourceReader, row: list[str], column: Column, line: int) -> int:
    if isinstance(column, str):
        names = [name.strip() for name in row]
        return names.index(require_column(reading, names, column, line))
    if column > len(row):
        raise reading.error(f"the table has {len(row)} columns", line, column)
    return column - 1


class _Table:
    """Rows of fields with the line each begins on; no row may take more than `max_record_bytes`."""

    def __init__(self, reading: SourceReader):
        self.reading, self.start, self.size = reading, 1, 0

    def rows(self) -> Iterator[tuple[list[str], int]]:
        plain = self.reading.source.format == "tsv"
        style: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if plain else {"strict": True}
        rows = csv.reader(self._lines(), **style)
        while True:
            self.size = 0
            try:
                row = _next_row(rows, self.reading.config.max_record_bytes)
            except csv.Error as error:
                remedy = "a quote may be missing; inside a quoted field it is written twice"
                raise self.reading.error(f"not a valid table: {error}", self.start, remedy=remedy) from None
            if row is None:
                return
            yield row, self.start
            self.start = rows.line_num + 1

    def _lines(self) -> Iterator[str]:
        for line in whole_lines(self.reading):
            self.size += line.size
            if self.size > self.reading.config.max_record_bytes:
                raise _too_long(self.reading, self.start, " (is a quote never closed?)")
            yield self.reading.decode(line.raw, line.number) + "\n"


def _next_row(rows: Iterable[list[str]], limit: int) -> list[str] | None:
    before = csv.field_size_limit(limit + 1)  # of the whole process: ours for this row only
    try:
        return next(iter(rows), None)
    finally:
        csv.field_size_limit(before)


def _not_json(reading: SourceReader, reason: str, line: int, column: int | None = None) -> DataError:
    return reading.error(reason, line, column, remedy='give one object on each line: {"text": "..."}')


def _too_long(reading: SourceReader, line: int, guess: str = "") -> DataError:
    limit = reading.config.max_record_bytes
    return reading.error(f"the record is longer than {limit} bytes{guess}", line, remedy="raise data.max_record_bytes")
