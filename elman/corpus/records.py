"""Records of any registered format: chosen columns, and single columns as documents."""

from collections.abc import Iterator, Sequence
from typing import Any

from elman.corpus.document import Document
from elman.corpus.formats import RECORD_FORMATS, Column, Fields
from elman.corpus.source_reader import SourceReader


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
        raise reader.error(f"is {type(value).__name__} {str(value)[:40]!r}, not text", line, column)
    if text.strip() and len(text.encode()) >= reader.config.max_record_bytes:
        raise reader.too_long(line)
    return text


def two_columns(columns: list[Column] | None, first: str, second: str) -> list[Column] | None:
    """Validates a setting of two column names or two column numbers."""
    if columns is None:
        return None
    if len(columns) != 2 or len({type(column) for column in columns}) != 1 or columns[0] == columns[1]:
        raise ValueError(f"name two columns, that of {first} and that of {second}, or give the numbers of both")
    if any(isinstance(column, int) and column < 1 for column in columns):
        raise ValueError("columns are counted from 1")
    return columns
