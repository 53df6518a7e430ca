"""Writes records with answers: tables, JSON lines, Parquet files, CoNLL columns, lines of text.

A file is written in parts, so that an interrupted job can go on: `head`, then one `part` for each group of rows.
"""

import csv
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO, FileIO, StringIO
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from elman.corpus.config import CONLL, TEXT, Names, Record, Table
from elman.corpus.tagged_corpus import TaggedLine
from elman.errors import ConfigError, DataError, MissingExtra, first_line
from elman.registry import Registry

NO_TAG = "_"  # of rows that are not words


class Answered(NamedTuple):
    """A record with its answer."""

    record: Record
    answer: dict[str, Any]  # as the task gives it
    named: Callable[["Answered", bool], dict[str, Any]]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the answer, without those of the record."""
        return self.named(self, False)

    @property
    def columns(self) -> dict[str, Any]:
        """The same as columns of a table."""
        return self.named(self, True)


class RecordWriter(ABC):
    """`table` is what is read, `added` are the names of the answers' columns, `format` makes a line of an answer."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    streams: ClassVar[bool] = True
    """Whether the parts are the file, one after the other."""

    def __init__(self, table: Table, added: Names, header: bool, format: Callable[[dict[str, Any]], str]):
        self.table, self.added, self.header, self.format = table, added, header, format

    def head(self) -> bytes:
        """What comes before the first part."""
        return b""

    @abstractmethod
    def part(self, rows: Sequence[Answered]) -> bytes: ...

    def join(self, parts: Sequence[Path], file: FileIO) -> None:
        """Writes the parts to a file."""
        file.write(self.head())
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file)


RECORD_WRITERS: Registry[RecordWriter] = Registry("output format")


def writer_format(path: str) -> str:
    """The output format that the suffix of a file stands for."""
    suffix = Path(path).suffix.lower()
    found = next((name for name in RECORD_WRITERS if suffix in RECORD_WRITERS[name].suffixes), None)
    if found is None:
        known = ", ".join(chain.from_iterable(RECORD_WRITERS[name].suffixes for name in RECORD_WRITERS))
        raise ConfigError(f"{path}: the suffix says no format; use one of {known}, or choose with --to")
    return found


def _cell(value: Any) -> str:
    """A value in a table of text: lists of words are separated by spaces, other structures are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) and not {*one} & {*" \t\n"} for one in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict | bool) else str(value)


@RECORD_WRITERS.register("csv")
class CommaWriter(RecordWriter):
    suffixes = (".csv",)

    def head(self) -> bytes:
        return self._lines([[*self.table.names, *self.added]]) if self.header else b""

    def part(self, rows: Sequence[Answered]) -> bytes:
        return self._lines([self._cells(row) for row in rows])

    def _cells(self, row: Answered) -> list[Any]:
        return [value if type(value) is str else _cell(value) for value in self._values(row)]

    def _values(self, row: Answered) -> Iterator[Any]:
        own = self.table.names
        if row.record.names == own:
            yield from row.record.values
        else:
            yield from self._aligned(dict(zip(row.record.names, row.record.values, strict=True)), own, row.record.line)
        yield from self._aligned(row.columns, self.added, row.record.line)

    def _aligned(self, found: dict[str, Any], names: Names, line: int) -> Iterable[Any]:
        if tuple(found) == names:
            return found.values()
        if extra := found.keys() - {*names}:
            remedy = "write jsonl, where each record has its own: --to jsonl"
            raise DataError(
                "not in the first record, which names the columns", line=line, column=min(extra), remedy=remedy
            )
        return (found.get(name) for name in names)

    def _lines(self, rows: list[list[str]]) -> bytes:
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()


@RECORD_WRITERS.register("tsv")
class TabWriter(CommaWriter):
    """A quote is an ordinary character, so tabs and line breaks within a cell become spaces."""

    suffixes = (".tsv",)

    def _lines(self, rows: list[list[str]]) -> bytes:
        return "".join("\t".join(map(_one_line, row)) + "\n" for row in rows).encode()


def _one_line(cell: str) -> str:
    return " ".join(cell.replace("\t", " ").splitlines()) if {*cell} & {*"\t\r\n"} else cell


@RECORD_WRITERS.register("jsonl")
class JsonWriter(RecordWriter):
    """The answer as it is, not as columns."""

    suffixes = (".jsonl", ".ndjson", ".json")

    def part(self, rows: Sequence[Answered]) -> bytes:
        return "".join(f"{_json(row)}\n" for row in rows).encode()


def _json(row: Answered) -> str:
    record = row.record
    if len({*record.names}) < len(record.names):
        raise DataError("two columns have the same name", line=1, remedy="rename one, or write csv")
    content = {**dict(zip(record.names, record.values, strict=True)), **row.fields}
    return json.dumps(content, ensure_ascii=False, default=str)


@RECORD_WRITERS.register("parquet")
class ParquetWriter(RecordWriter):
    """Columns of a Parquet file keep their types; the other types are inferred."""

    suffixes = (".parquet",)
    streams = False

    def part(self, rows: Sequence[Answered]) -> bytes:
        pyarrow = _pyarrow()
        records = [dict(zip(row.record.names, row.record.values, strict=True)) for row in rows]
        names = self.table.names or tuple(dict.fromkeys(chain.from_iterable(records)))
        schema, columns = self.table.schema, dict[str, Any]()
        for name in dict.fromkeys([*names, *chain.from_iterable(records)]):
            kind = schema.field(name).type if schema is not None else None
            columns[name] = pyarrow.array([record.get(name) for record in records], kind)
        for name in self.added:
            columns[name] = pyarrow.array([row.columns.get(name) for row in rows])
        buffer = BytesIO()
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), buffer)
        return buffer.getvalue()

    def join(self, parts: Sequence[Path], file: FileIO) -> None:
        pyarrow = _pyarrow()
        from pyarrow import parquet

        if not parts:
            schema = self.table.schema or pyarrow.schema([(name, pyarrow.string()) for name in self.table.names])
            return parquet.write_table(schema.empty_table(), file)
        try:
            schema = pyarrow.unify_schemas(map(parquet.read_schema, parts), promote_options="permissive")
        except pyarrow.ArrowException as error:
            remedy = "write jsonl, where they may differ: --to jsonl"
            raise DataError(f"the types of a column differ: {first_line(error)}", remedy=remedy) from None
        with parquet.ParquetWriter(file, schema) as writer:
            for part in parts:
                table = parquet.read_table(part)
                missing = [name for name in schema.names if name not in table.column_names]
                for name in missing:
                    table = table.append_column(name, pyarrow.nulls(len(table)))
                writer.write_table(table.select(schema.names).cast(schema))


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("writing parquet files", "pyarrow", "data") from None
    return pyarrow


@RECORD_WRITERS.register(CONLL)
class TagWriter(RecordWriter):
    """The lines of a CoNLL file with the predicted tag as the last column; for other inputs, words and tags."""

    suffixes = (".conll", ".conllu", ".conllup")

    def part(self, rows: Sequence[Answered]) -> bytes:
        return "".join(f"{line}\n" for row in rows for line in (*self._lines(row), "")).encode()

    def _lines(self, row: Answered) -> Iterator[str]:
        tags = row.answer.get("tags")
        if tags is None:
            raise ConfigError("--to conll: only taggers give a tag for each word")
        if "rows" not in row.record.names:
            return ("\t".join(pair) for pair in zip(row.answer["words"], tags, strict=True))
        return (_tagged(line, tags) for line in row.record.values[row.record.names.index("rows")])


def _tagged(line: TaggedLine, tags: Sequence[str]) -> str:
    if line.comment:
        return line.text
    separator = "\t" if "\t" in line.text else " "
    return f"{line.text}{separator}{NO_TAG if line.word is None else tags[line.word]}"


@RECORD_WRITERS.register(TEXT)
class LineWriter(RecordWriter):
    """Only the answers, as lines of text."""

    suffixes = (".txt",)

    def part(self, rows: Sequence[Answered]) -> bytes:
        return "".join(f"{self.format(row.answer)}\n" for row in rows).encode()
