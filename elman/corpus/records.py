"""Records: the registry of their formats, chosen columns, and single columns as documents.

The settings of a corpus name a format, so this module must not import the modules that read sources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from elman.corpus.document import Document
from elman.errors import nearest
from elman.registry import Registry

if TYPE_CHECKING:
    from elman.corpus.source_reader import SourceReader

Column = str | int  # a name; in a table without a header, a number counted from 1
Fields = Iterator[tuple[tuple[Any, ...], int]]  # for each record, the values of the chosen columns and the line number
TEXT = "text"  # not a record format: files whose unknown suffix means plain text


class RecordFormat(ABC):
    """Reads chosen columns of the records of a source; selected by file name suffix or by data.format."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    delimited: ClassVar[bool] = False
    """Text lines with separators, which may lack a header row, and may be CoNLL columns."""

    @abstractmethod
    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        """The chosen columns of every record, in the given order; None for each column of an empty line."""


RECORD_FORMATS: Registry[RecordFormat] = Registry("data format")


def format_of(path: Path) -> str:
    """The format of a file by its last suffix, ignoring .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return next((name for name in RECORD_FORMATS if {*suffixes[-1:]} & {*RECORD_FORMATS[name].suffixes}), TEXT)


def require_column(reader: SourceReader, names: Iterable[str], column: Column, line: int | None = None) -> str:
    """The chosen column if it exists exactly once; else an error that lists the existing ones."""
    column, known = str(column), list(names)
    if known.count(column) == 1:
        return column
    reason = "occurs more than once" if column in known else f"no such column{nearest(column, known)}"
    shown = ", ".join(repr(name) for name in known[:50]) or "none"
    remedy = "name one of them in data.column, or in data.columns if several are read"
    raise reader.error(f"{reason}; columns: {shown}", line, column, remedy=remedy)


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
