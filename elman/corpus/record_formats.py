"""Formats of records: tables with separators, JSON lines, Parquet files, data sets of the Hugging Face hub."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

from elman.corpus.config import RECORD_FORMATS, Column, Fields, Record, RecordFormat, Table
from elman.corpus.document import Document, Repairs
from elman.corpus.source_reader import SourceReader
from elman.corpus.text import whole_lines
from elman.errors import DataError, MissingExtra, first_line, nearest

ROWS, FEW_ROWS = 256, 16  # of a Parquet file in memory at a time
OTHER_COLUMN = "name another one with --columns; in a recipe data.column, or data.columns for several"
OTHER_SEPARATOR = re.compile(r"\t|;(?! )")  # after the semicolon of a sentence comes a space
SEPARATOR_NAMES = {";": "semicolons", "\t": "tabs"}
LARGE = 2**22  # bytes of a row group, from which single values may be large


def require_column(reader: SourceReader, names: Iterable[str], column: Column, line: int | None = None) -> str:
    """The chosen column if it exists exactly once; else an error that lists the existing ones."""
    column, known = str(column), list(names)
    if known.count(column) == 1:
        return column
    reason = "occurs more than once" if column in known else f"no such column{nearest(column, known)}"
    shown = ", ".join(repr(name) for name in known[:50]) or "none"
    raise reader.error(f"{reason}; columns: {shown}", line, column, remedy=OTHER_COLUMN)


def record_documents(reader: SourceReader) -> Iterator[Document]:
    """A record's size is that of its text as a line of UTF-8, so that scores are comparable across formats."""
    column = reader.config.column
    for (value,), line in read_columns(reader, [column]):
        text = as_text(reader, value, line, column)
        yield Document(text, reader.source.name, line, len(text.encode()) + 1 if text.strip() else 0)


def read_columns(reader: SourceReader, columns: Sequence[Column]) -> Fields:
    """The chosen columns of every record, in the given order; None for each column of an empty line."""
    return RECORD_FORMATS[reader.source.format]().read(reader, columns)


def as_text(reader: SourceReader, value: Any, line: int, column: Column) -> str:
    """A value that must be text, repaired if needed; None is empty text."""
    if isinstance(value, bytes):
        text = reader.mend(value, line)
    elif isinstance(value, str):
        text = reader.clean(value, line)
    elif value is None:
        text = ""
    else:
        reason = f"is {type(value).__name__} {str(value)[:40]!r}, not text"
        raise reader.error(reason, line, column, remedy=OTHER_COLUMN)
    if text.strip() and len(text.encode()) >= reader.config.max_record_bytes:
        raise reader.too_long(line)
    return text


@RECORD_FORMATS.register("csv")
class CommaSeparated(RecordFormat):
    """Comma-separated values with a header row, or without one if columns are numbers; separated by semicolons or tabs
    where the first line has no comma, as spreadsheets write them in many countries."""

    suffixes = (".csv",)
    delimited = True

    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        width, indices = 0, list[int]()
        for row, line in _rows(reader):
            if not row:
                yield (None,) * len(columns), line
                continue
            if width == 0:
                width, indices = len(row), [_index(reader, row, column, line) for column in columns]
                if any(isinstance(column, str) for column in columns):
                    continue
            _check_width(reader, row, width, line)
            yield tuple(row[index] for index in indices), line

    def table(self, reader: SourceReader, header: bool = True) -> Table:
        """Line breaks inside quotes are kept as they are."""
        rows = _rows(reader, keep_ends=True)
        first, line = next(((row, line) for row, line in rows if row), ([], 1))
        names = tuple(first) if header else tuple(map(str, range(1, len(first) + 1)))

        def records() -> Iterator[Record]:
            for row, at in rows if header or not first else chain([(first, line)], rows):
                if row or len(names) == 1:
                    cells = row or [""]  # an empty line in a table of one column is an empty cell
                    _check_width(reader, cells, len(names), at)
                    yield Record(names, tuple(cells), at)

        return Table(names, records())


def _check_width(reader: SourceReader, row: list[str], width: int, line: int) -> None:
    if len(row) != width:
        raise reader.error(f"{len(row)} fields, but the first row has {width}", line)


@RECORD_FORMATS.register("tsv")
class TabSeparated(CommaSeparated):
    """Tab-separated values; a quote is an ordinary character."""

    suffixes = (".tsv",)


def columns_without_header(reader: SourceReader, first: str, second: str) -> list[Column]:
    """The usual column names. In a delimited table of two columns one of them may have another name; where neither is
    usual, there is no header: the numbers 1 and 2."""
    usual: list[Column] = [first, second]
    if RECORD_FORMATS[reader.source.format].delimited:
        row = next((row for row, _ in _rows(replace(reader, repairs=Repairs())) if row), [])
        names = [name.strip() for name in row]
        if len(names) == 2 and not {name.lower() for name in names} & {first, second}:
            reader.repair(no_header(first, second))
            return [1, 2]
        others = {*names} - {first, second}
        if len({*names}) == 2 and len(others) == 1:
            (other,) = others
            missing = second if first in names else first
            reader.repair(f"column {other!r} was used as {missing}")
            return [other if name == missing else name for name in usual]
    return usual


def no_header(first: str, second: str) -> str:
    """The remark about a table of two columns whose first row has none of the usual names."""
    used = f"column 1 was used as {first}, column 2 as {second}"
    return f"table without a header: {used}; if its first row is one, name its columns with --columns"


def _index(reader: SourceReader, row: list[str], column: Column, line: int) -> int:
    if isinstance(column, str):
        names = [name.strip() for name in row]
        return names.index(require_column(reader, names, column, line))
    if column > len(row):
        raise reader.error(f"the table has {len(row)} columns", line, column, remedy=OTHER_COLUMN)
    return column - 1


def _rows(reader: SourceReader, keep_ends: bool = False) -> Iterator[tuple[list[str], int]]:
    """Rows of fields with their first line; a row may not be longer than `max_record_bytes`. Line breaks inside quotes
    become \\n unless their `ends` are kept."""
    start, size, limit = 1, 0, reader.config.max_record_bytes

    def texts() -> Iterator[str]:
        nonlocal size
        for line in whole_lines(reader):
            size += line.size
            if size > limit:
                raise reader.too_long(start, " (is a quote never closed?)")
            yield reader.decode(line.raw, line.number) + (line.end.decode() if keep_ends else "\n")

    lines = texts()
    first = next(lines, "")
    rows = csv.reader(chain([first] if first else [], lines), **_style(reader, first))
    while True:
        try:
            row = _next_row(rows, limit)
        except csv.Error as error:
            remedy = "a quote may be missing; inside a quoted field it is written twice"
            raise reader.error(f"not a valid table: {error}", start, remedy=remedy) from None
        if row is None:
            return
        yield row, start
        start, size = rows.line_num + 1, 0


def _style(reader: SourceReader, first: str) -> dict[str, Any]:
    """How the cells of a table are written, by its first line."""
    if reader.source.format == "tsv":
        return {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    other = None if "," in first else OTHER_SEPARATOR.search(first)
    if other:
        reader.repair(f"table separated by {SEPARATOR_NAMES[other[0]]}, not commas")
    return {"delimiter": other[0] if other else ",", "strict": True}


def _next_row(rows: Iterable[list[str]], limit: int) -> list[str] | None:
    before = csv.field_size_limit(limit + 1)  # a process-wide setting, changed for this row only
    try:
        return next(iter(rows), None)
    finally:
        csv.field_size_limit(before)


@RECORD_FORMATS.register("jsonl")
class JsonLines(RecordFormat):
    """One JSON object per line."""

    suffixes = (".jsonl", ".ndjson", ".json")

    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        for found, line in _objects(reader):
            if found is None:
                yield (None,) * len(columns), line
            else:
                yield tuple(found[require_column(reader, found, column, line)] for column in columns), line

    def table(self, reader: SourceReader, header: bool = True) -> Table:
        found = (Record(tuple(one), tuple(one.values()), line) for one, line in _objects(reader) if one is not None)
        return _of_first(found)


def _of_first(records: Iterator[Record]) -> Table:
    """A table with the names of its first record."""
    first = next(records, None)
    return Table(first.names, chain([first], records)) if first else Table((), records)


def _objects(reader: SourceReader) -> Iterator[tuple[dict[str, Any] | None, int]]:
    """The object on each line, None for a blank one."""
    for line in whole_lines(reader):
        text = reader.decode(line.raw, line.number)
        if not text.strip():
            yield None, line.number
            continue
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise _invalid(reader, f"not valid JSON: {error.msg}", line.number, error.colno) from None
        except RecursionError:
            raise _invalid(reader, "JSON nested too deeply", line.number) from None
        except ValueError as error:  # numbers of thousands of digits
            raise _invalid(reader, f"unreadable JSON: {error}", line.number) from None
        if not isinstance(record, dict):
            raise _invalid(reader, f"a JSON {type(record).__name__}, not an object", line.number)
        yield record, line.number


def _invalid(reader: SourceReader, reason: str, line: int, column: int | None = None) -> DataError:
    return reader.error(reason, line, column, remedy='give one object on each line: {"text": "..."}')


@RECORD_FORMATS.register("parquet")
class Parquet(RecordFormat):
    """Strings are read as bytes, because pyarrow does not guarantee that they are valid UTF-8."""

    suffixes = (".parquet",)

    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        with _parquet(reader) as file:
            names = [require_column(reader, file.schema_arrow.names, column) for column in columns]
            yield from _parquet_rows(reader, file, names)

    def table(self, reader: SourceReader, header: bool = True) -> Table:
        with _parquet(reader) as file:
            schema = file.schema_arrow
        names = tuple(schema.names)

        def records() -> Iterator[Record]:
            with _parquet(reader) as file:
                for row, line in _parquet_rows(reader, file, names):
                    texts = (reader.mend(value, line) if isinstance(value, bytes) else value for value in row)
                    yield Record(names, tuple(texts), line)

        return Table(names, records(), schema)


@contextmanager
def _parquet(reader: SourceReader) -> Iterator[Any]:
    try:
        import pyarrow  # noqa: F401  (the next line needs it)
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MissingExtra("reading parquet files", "pyarrow", "data") from None
    try:
        with ParquetFile(reader.source.path) as file:
            yield file
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many types of errors for damaged files
        raise reader.error(f"cannot be read as parquet: {first_line(error)}") from None


def _parquet_rows(reader: SourceReader, file: Any, names: Sequence[str]) -> Fields:
    packed, rows = reader.source.path.stat().st_size, _rows_at_once(reader, file.metadata)
    line = size = 0
    for batch in file.iter_batches(batch_size=rows, columns=list(dict.fromkeys(names))):
        parts = [_values(reader, batch.column(name), name) for name in names]
        for row in zip(*parts, strict=True):
            line += 1
            values = tuple(value.as_py() for value in row)
            size += sum(len(value) if isinstance(value, bytes) else 1 for value in values)
            reader.check_unpacked(size, packed)  # a dictionary holds once what many rows have
            yield values, line
        reader.share_read = line / file.metadata.num_rows


def _rows_at_once(reader: SourceReader, about: Any) -> int:
    """Rows to decode at a time, by what the file says of its sizes; an error where a record must be too large. The
    sizes are those of whole row groups: pyarrow aborts the process where the metadata of a column are damaged."""
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    most = reader.config.max_record_bytes * about.num_columns
    if any(group.total_byte_size > max(1, group.num_rows) * most for group in groups):
        raise reader.too_long(1)
    reader.check_unpacked(sum(group.total_byte_size for group in groups), reader.source.path.stat().st_size)
    return ROWS if max((group.total_byte_size for group in groups), default=0) < LARGE else FEW_ROWS


def _values(reader: SourceReader, values: Any, column: str) -> Any:
    from pyarrow import large_binary, types

    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_string(values.type) or types.is_large_string(values.type):
        return values.cast(large_binary())
    if types.is_binary(values.type) or types.is_large_binary(values.type):
        raise reader.error(f"has type {values.type}, not text", column=column, remedy=OTHER_COLUMN)
    return values


@RECORD_FORMATS.register("hub")
class HubDataset(RecordFormat):
    """A data set of the Hugging Face hub, or one in a local folder."""

    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        for row, line in _hub_rows(reader):
            yield tuple(row[require_column(reader, row, column, line)] for column in columns), line

    def table(self, reader: SourceReader, header: bool = True) -> Table:
        return _of_first(Record(tuple(row), tuple(row.values()), line) for row, line in _hub_rows(reader))


def _hub_rows(reader: SourceReader) -> Iterator[tuple[dict[str, Any], int]]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtra("reading hub data sets", "datasets", "data") from None
    source = reader.source
    try:
        rows = load_dataset(source.path.as_posix(), source.config, split=source.split, streaming=True)
        yield from ((row, line) for line, row in enumerate(rows, start=1))
    except DataError:
        raise
    except Exception as error:  # network, data set scripts, missing splits: each raises its own type
        remedy = "write hub:OWNER/NAME[@CONFIG][#SPLIT], or give a local folder"
        raise reader.error(f"cannot be loaded: {first_line(error)}", remedy=remedy) from None
