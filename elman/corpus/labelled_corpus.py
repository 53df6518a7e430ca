"""Labelled texts: records with a label column, or a folder with one sub-folder per label."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import Field

from elman.corpus.config import TwoColumnConfig
from elman.corpus.corpus import ExampleCorpus
from elman.corpus.document import SPLITS, Document, Split
from elman.corpus.record_formats import columns_without_header
from elman.corpus.records import Column, as_text, read_columns
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source
from elman.corpus.text import file_documents


class LabelledConfig(TwoColumnConfig):
    """Columns of labelled texts, and the separator of labels."""

    sides: ClassVar = ("label", "text")

    columns: list[Column] | None = None
    """Columns of label and text, by name, or by number in a table without a header: [1, 2]. null: label and text, or
    the first and second column of a two-column table without such a header."""

    separator: str = ""
    """Separator of several labels of one text, such as a comma; an empty cell is then a text without labels. Empty:
    single-label."""

    max_tokens: int = Field(0, ge=0)
    """Longer texts are truncated to this many tokens; 0: no limit."""


@dataclass(frozen=True, slots=True)
class LabelledText(Document):
    """A text with its labels: exactly one, or any number in multi-label data."""

    labels: tuple[str, ...] = ()


class LabelledCorpus(ExampleCorpus):
    """`texts(split)` streams labelled texts; splits, held-out parts and repairs as in any corpus."""

    Config = LabelledConfig
    config: LabelledConfig
    expected = "a file with labels and texts"
    names: ClassVar[Any] = staticmethod(lambda text: text.labels)

    def __init__(self, config: LabelledConfig):
        super().__init__(config)
        self._folders = {split: _folder_labels(getattr(config, split), self._sources[split]) for split in SPLITS}

    def texts(self, split: Split) -> Iterator[LabelledText]:
        return cast(Iterator[LabelledText], self.documents(split))

    def _facts(self, split: Split) -> list[Any]:
        origin = split if self._sources[split] else "train"
        labels = [self._folders[origin].get(source.name) for source in self._origin(split)]
        return [self.config.columns, self.config.separator, labels]

    def _examples(self, reader: SourceReader) -> Iterator[LabelledText]:
        for text in self._file(reader) if reader.source.format == "text" else self._records(reader):
            if text.text.strip():
                yield text
            else:
                reader.repair("empty text", text.line)

    def _file(self, reader: SourceReader) -> Iterator[LabelledText]:
        name, limit = reader.source.name, self.config.max_record_bytes
        label = next((labels[name] for labels in self._folders.values() if name in labels), None)
        if label is None:
            remedy = "give a table (.tsv, .csv), .jsonl or .parquet, or a folder with one sub-folder for each label"
            raise reader.error("a text file has no labels", remedy=remedy)
        pieces, size = list[str](), 0
        for piece in file_documents(reader):
            pieces.append(piece.text)
            size += piece.size
            if size > limit:
                raise reader.error(f"the file is longer than {limit} bytes", remedy="raise data.max_record_bytes")
        yield LabelledText("".join(pieces).rstrip("\n"), name, labels=(label,))

    def _records(self, reader: SourceReader) -> Iterator[LabelledText]:
        columns = self.config.columns or columns_without_header(reader, *self.config.sides)
        for (given, value), line in read_columns(reader, columns):
            text = as_text(reader, value, line, columns[1])
            labels = self._labels(reader, given, line, columns[0]) if text.strip() else ()
            yield LabelledText(text, reader.source.name, line, labels=labels)

    def _labels(self, reader: SourceReader, value: Any, line: int, column: Column) -> tuple[str, ...]:
        separator = self.config.separator
        if isinstance(value, list | tuple):
            names = [_name(reader, one, line, column) for one in value]
        else:
            name = _name(reader, value, line, column)
            names = [part.strip() for part in name.split(separator)] if separator else [name]
            names = [] if separator and names == [""] else names
        if "" in names:
            remedy = "remove the line, or name the labels' column in data.columns"
            remedy += "" if separator else "; if texts may have no label, set data.separator"
            raise reader.error("missing label", line, column, remedy=remedy)
        return tuple(dict.fromkeys(names))


def _name(reader: SourceReader, value: Any, line: int, column: Column) -> str:
    """A label as text; integers and booleans are labels too."""
    if isinstance(value, bool | int):
        return str(value).lower()
    return as_text(reader, value, line, column).strip()


def _folder_labels(places: str | list[str] | None, sources: list[Source]) -> dict[str, str]:
    """The label of each file in a sub-folder of a given folder."""
    folders = [Path(place).expanduser() for place in ([places] if isinstance(places, str) else places or [])]
    labels: dict[str, str] = {}
    for source in sources:
        for folder in folders:
            inside = source.path.relative_to(folder).parts if source.path.is_relative_to(folder) else ()
            if len(inside) > 1:
                labels[source.name] = inside[0]
    return labels
