"""Settings of a corpus: its files, and what a document is; and the registry of the record formats that they name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from elman.config import Config
from elman.corpus.document import SPLITS
from elman.registry import Registry

if TYPE_CHECKING:
    from elman.corpus.source_reader import SourceReader

DataPaths = str | list[str] | None
Column = str | int  # a name; in a table without a header, a number counted from 1
Fields = Iterator[tuple[tuple[Any, ...], int]]  # for each record, the values of the chosen columns and the line number
Names = tuple[str, ...]
TEXT = "text"  # not a record format: files whose unknown suffix means plain text
WORDS = "words"  # not a record format: lines of words, separated by spaces
CONLL = "conll"  # not a record format: its records are sentences


class Record(NamedTuple):
    """All fields of a record, unchanged."""

    names: Names
    values: tuple[Any, ...]
    line: int


class Table(NamedTuple):
    """All records of a source. Those of JSON lines may have different names; `schema` is that of a Parquet file."""

    names: Names
    records: Iterator[Record]
    schema: Any = None


class RecordFormat(ABC):
    """Reads the records of a source; selected by file name suffix or by data.format."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    delimited: ClassVar[bool] = False
    """Text lines with separators, which may lack a header row, and may be CoNLL columns."""

    @abstractmethod
    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        """The chosen columns of every record, in the given order; None for each column of an empty line."""

    def table(self, reader: SourceReader, header: bool = True) -> Table:
        """All columns of every record; empty lines are left out. Without a `header`, columns are named 1, 2, ..."""
        raise reader.error(f"files of format {self.name} cannot be read with all their columns")


RECORD_FORMATS: Registry[RecordFormat] = Registry("data format")


def format_of(path: Path) -> str:
    """The format of a file by its last suffix, ignoring .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return next((name for name in RECORD_FORMATS if {*suffixes[-1:]} & {*RECORD_FORMATS[name].suffixes}), TEXT)


class DataConfig(Config):
    """Text, records or a synthetic language, and how they are read."""

    train: DataPaths = None
    """Training data: a file, a folder, a pattern such as data/*.txt, - for standard input,
    hub:OWNER/NAME[@CONFIG][#SPLIT] for a data set on the Hugging Face hub, or a list of these."""

    valid: DataPaths = None
    """Validation data, like train; if not set, a part of train is held out."""

    test: DataPaths = None
    """Test data, like train; if not set, see test_fraction."""

    language: dict[str, Any] | None = None
    """A synthetic language instead of files, with its settings: {type: agreement, ...}."""

    format: str = "auto"
    """Format of the files: text, csv, tsv, jsonl, parquet, hub, or a registered one. auto: by file name suffix
    (ignoring .gz), text if unknown."""

    column: str | int = "text"
    """Column of the text in records: its name, or for csv and tsv without a header its number, counted from 1."""

    document: Literal["auto", "line", "block", "file", "record"] = "auto"
    """What a document of a text file is: a line, a block between blank lines, or the file. auto: line for word
    tokenizers, else file; a record or synthetic sentence is always a document."""

    boundary: Literal["auto", "carry", "reset"] = "auto"
    """Whether the model's state is carried over to the next document. auto: carry for text files, else reset."""

    valid_fraction: float = Field(0.1, ge=0, lt=1)
    """Share of train that is held out for validation by a hash of the text, if valid is not set."""

    test_fraction: float = Field(0.0, ge=0, lt=1)
    """Share of train that is held out for testing by a hash of the text, if test is not set."""

    max_record_bytes: int = Field(16 * 2**20, ge=16)
    """Maximum size of a line, block or record; longer ones are treated as damage."""

    invalid: Literal["repair", "error"] = "repair"
    """Invalid UTF-8 and NUL bytes: repair (replace or remove, and count) or error."""

    @property
    def names_files(self) -> bool:
        """Whether a file or a data set on the hub has to be opened, also for a synthetic language."""
        return any(getattr(self, split) or (self.language or {}).get(split) for split in SPLITS)

    @field_validator("format")
    @classmethod
    def _known(cls, format: str) -> str:
        if format not in ("auto", TEXT) and format not in RECORD_FORMATS:
            raise ValueError(str(RECORD_FORMATS.unknown(format, also=("auto", TEXT))))
        return format

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.valid_fraction + self.test_fraction > 0.9:
            raise ValueError("valid_fraction and test_fraction may sum to at most 0.9")
        if isinstance(self.column, int) and self.column < 1:
            raise ValueError("columns are counted from 1")
        if self.language is not None and (self.train, self.valid, self.test) != (None, None, None):
            raise ValueError("give either files (train, valid, test) or a language, not both")
        return self


class TwoColumnConfig(DataConfig):
    """Records of which two columns are read."""

    sides: ClassVar[tuple[str, str]]
    """What the columns contain, which is also their usual name."""

    columns: list[Column] | None = None

    @field_validator("columns")
    @classmethod
    def _two(cls, columns: list[Column] | None) -> list[Column] | None:
        if columns is None:
            return None
        if len(columns) != 2 or len({type(column) for column in columns}) != 1 or columns[0] == columns[1]:
            one, other = cls.sides
            raise ValueError(
                f"name two columns, that of the {one} and that of the {other}, or give the numbers of both: "
                f"--columns {one},{other}"
            )
        if any(isinstance(column, int) and column < 1 for column in columns):
            raise ValueError("columns are counted from 1")
        return columns
