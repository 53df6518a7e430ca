"""Labelled texts: tables, JSON lines or parquet with a column of labels, or a folder with a sub-folder for each."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from pydantic import Field, field_validator

from elman.corpus.config import DataConfig
from elman.corpus.corpus import SPLITS, Corpus, Split
from elman.corpus.document import Document, Repairs
from elman.corpus.records import Column, as_text, first_row, no_header, read_columns, two_columns
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source
from elman.corpus.text import file_documents
from elman.errors import ConfigError

LABEL, TEXT = DEFAULT = ("label", "text")
NO_HEADER = no_header("label", "text")


class LabelledConfig(DataConfig):
    """Where labelled texts are, and how labels are written."""

    columns: list[Column] | None = None
    """The columns of label and text, by name, or by number in a table without a header: [1, 2]. null takes label and
    text; of a table of two columns without such a header, the first for the label."""

    separator: str = ""
    """What stands between the labels of one text that has several, such as a comma; an empty cell is then a text
    without any. Empty: each cell is one label."""

    max_tokens: int = Field(0, ge=0)
    """Where longer texts are cut; 0 takes them whole."""

    @field_validator("columns")
    @classmethod
    def _two(cls, columns: list[Column] | None) -> list[Column] | None:
        return two_columns(columns, "the label", "the text")


@dataclass(frozen=True, slots=True)
class Labelled(Document):
    """A text and what it is said to be; several labels, or none, where texts can have them."""

    labels: tuple[str, ...] = ()


class LabelledCorpus(Corpus):
    """`texts(split)` streams labelled texts; splits, held-out parts and repairs are those of any corpus."""

    config: LabelledConfig
    names: ClassVar[Any] = staticmethod(lambda text: text.labels)

    def __init__(self, config: LabelledConfig):
        if not (config.train or config.valid or config.test):
            raise ConfigError("no data: give data.train a file with labels and texts")
        super().__init__(config.model_copy(update={"document": "record", "boundary": "reset"}))
        self._folders = {split: _folder_labels(getattr(config, split), self._sources[split]) for split in SPLITS}

    @classmethod
    def open(cls, **settings: Any) -> Self:
        return cls(LabelledConfig.make(settings, where="data"))

    def texts(self, split: Split) -> Iterator[Labelled]:
        return cast(Iterator[Labelled], self.documents(split))

    def fingerprint(self, split: Split) -> str:
        """As of any corpus, and with all that decides the labels."""
        origin = split if self._sources[split] else "train"
        labels = [self._folders[origin].get(source.name) for source in self._origin(split)]
        facts = [super().fingerprint(split), self.config.columns, self.config.separator, labels]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _read(self, sources: Iterable[Source], repairs: Repairs, passage: int | None = None) -> Iterator[Document]:
        for source in sources:
            reading = SourceReader(source, self.config, repairs)
            texts = self._file(reading) if source.format == "text" else self._records(reading)
            for text in texts:
                if text.text.strip():
                    yield text
                else:
                    repairs.add("empty text", text.source, text.line)

    def _file(self, reading: SourceReader) -> Iterator[Labelled]:
        name, limit = reading.source.name, self.config.max_record_bytes
        label = next((labels[name] for labels in self._folders.values() if name in labels), None)
        if label is None:
            remedy = "give a table (.tsv, .csv), .jsonl or .parquet, or a folder with one sub-folder for each label"
            raise reading.error("a text file says nothing of labels", remedy=remedy)
        pieces, size = list[str](), 0
        for piece in file_documents(reading):
            pieces.append(piece.text)
            size += piece.size
            if size > limit:
                raise reading.error(f"the file is longer than {limit} bytes", remedy="raise data.max_record_bytes")
        yield Labelled("".join(pieces).rstrip("\n"), name, labels=(label,))

    def _records(self, reading: SourceReader) -> Iterator[Labelled]:
        columns = self.config.columns or _columns(reading)
        for (given, value), line in read_columns(reading, columns):
            text = as_text(reading, value, line, columns[1])
            labels = self._labels(reading, given, line, columns[0]) if text.strip() else ()
            yield Labelled(text, reading.source.name, line, labels=labels)

    def _labels(self, reading: SourceReader, value: Any, line: int, column: Column) -> tuple[str, ...]:
        separator = self.config.separator
        if isinstance(value, list | tuple):
            names = [_name(reading, one, line, column) for one in value]
        else:
            name = _name(reading, value, line, column)
            names = [part.strip() for part in name.split(separator)] if separator else [name]
            names = [] if separator and names == [""] else names
        if "" in names:
            remedy = "remove the line, or name the labels' column in data.columns"
            remedy += "" if separator else "; where texts may have no label, set data.separator"
            raise reading.error("missing label", line, column, remedy=remedy)
        return tuple(dict.fromkeys(names))


def _columns(reading: SourceReader) -> list[Column]:
    """Label and text by their usual names; of a table of two columns that names neither, by number."""
    if reading.source.format in ("csv", "tsv"):
        names = [name.strip().lower() for name in first_row(SourceReader(reading.source, reading.config, Repairs()))]
        if len(names) == 2 and not {*names} & {*DEFAULT}:
            reading.repair(NO_HEADER)
            return [1, 2]
    return [*DEFAULT]


def _name(reading: SourceReader, value: Any, line: int, column: Column) -> str:
    """A label as it is written; whole numbers and truth values are names too."""
    if isinstance(value, bool | int):
        return str(value).lower()
    return as_text(reading, value, line, column).strip()


def _folder_labels(places: str | list[str] | None, sources: list[Source]) -> dict[str, str]:
    """The label of each file that lies in a sub-folder of a folder that was named."""
    folders = [Path(place).expanduser() for place in ([places] if isinstance(places, str) else places or [])]
    labels: dict[str, str] = {}
    for source in sources:
        for folder in folders:
            inside = source.path.relative_to(folder).parts if source.path.is_relative_to(folder) else ()
            if len(inside) > 1:
                labels[source.name] = inside[0]
    return labels
