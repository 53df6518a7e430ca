"""Labelled texts: records with a label column, lines with __label__NAME, or a folder with one sub-folder per label; and
their label sets."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from elman.config import Count
from elman.corpus.config import TEXT, Column, TwoColumnConfig
from elman.corpus.corpus import ExampleCorpus
from elman.corpus.document import SPLITS, Document, Repairs, Split
from elman.corpus.record_formats import as_text, columns_without_header, read_columns
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source
from elman.corpus.text import Passage, file_documents, whole_lines
from elman.errors import ConfigError, DataError, nearest
from elman.files import atomic_write
from elman.untrusted import read_as

BATCH = 1024  # texts that are encoded together
UNSEEN, CUT = "label not in training: text removed", "text truncated to max_tokens"
LABEL = re.compile(r"(?<!\S)__label__(\S+)\s*")
Weights = Literal["none", "balanced"] | dict[str, float]


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

    def _of_source(self, reader: SourceReader, passage: Passage | None = None) -> Iterator[LabelledText]:
        for text in self._texts(reader):
            if text.text.strip():
                yield text
            else:
                reader.repair("empty text", text.line)

    def _texts(self, reader: SourceReader) -> Iterator[LabelledText]:
        if reader.source.format != TEXT:
            return self._records(reader)
        name = reader.source.name
        label = next((labels[name] for labels in self._folders.values() if name in labels), None)
        return self._lines(reader) if label is None else self._file(reader, label)

    def _lines(self, reader: SourceReader) -> Iterator[LabelledText]:
        """As fastText reads them: words of a line that begin with __label__ are its labels."""
        for line in whole_lines(reader):
            names, text = split_labels(reader.decode(line.raw, line.number))
            if not names and text:
                remedy = "begin each with __label__NAME, or give a table (.tsv, .csv), .jsonl or .parquet, or a folder "
                remedy += "with one sub-folder for each label"
                raise reader.error("the line of a text file has no label", line.number, remedy=remedy)
            labels = self._labels(reader, names if len(names) > 1 else names[0], line.number, "label") if text else ()
            yield LabelledText(text, reader.source.name, line.number, labels=labels)

    def _file(self, reader: SourceReader, label: str) -> Iterator[LabelledText]:
        name, limit = reader.source.name, self.config.max_record_bytes
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
            remedy = "remove the line, or name the columns of labels and texts with --columns (data.columns)"
            remedy += "" if separator else "; if texts may have no label, set data.separator"
            raise reader.error("missing label", line, column, remedy=remedy)
        return tuple(dict.fromkeys(names))


def split_labels(line: str) -> tuple[list[str], str]:
    """The labels in a line of fastText's format, and the rest."""
    return LABEL.findall(line), LABEL.sub("", line).strip()


def _name(reader: SourceReader, value: Any, line: int, column: Column) -> str:
    """A label as text; integers and booleans are labels too."""
    if isinstance(value, bool | int):
        return str(value).lower()
    return as_text(reader, value, line, column).strip()


def _folder_labels(places: str | list[str] | None, sources: list[Source]) -> dict[str, str]:
    """The label of each file in a sub-folder of a given folder."""
    folders = [Path(place).expanduser() for place in ([places] if isinstance(places, str) else places or [])]
    return {
        source.name: inside[0]
        for source in sources
        for folder in folders
        if source.path.is_relative_to(folder) and len(inside := source.path.relative_to(folder).parts) > 1
    }


@dataclass(frozen=True)
class LabelSet:
    """Label names by index, and their counts in training data."""

    names: tuple[str, ...]
    counts: tuple[Count, ...]
    examples: Count
    several: bool
    """Multi-label: whether a text can have several labels or none."""

    @classmethod
    def of(cls, texts: Iterable[LabelledText]) -> "LabelSet":
        counts: Counter[str] = Counter()
        examples, several, where = 0, False, ""
        for text in texts:
            counts.update(text.labels)
            examples, several, where = examples + 1, several or len(text.labels) != 1, text.source
        if len(counts) < (1 if several else 2):
            found = f"only the label {next(iter(counts))!r}" if counts else "no label at all"
            raise DataError(f"{found} in {examples} texts: nothing to classify", file=where or None)
        names = sorted(counts)
        return cls(tuple(names), tuple(counts[name] for name in names), examples, several)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def number(self, text: LabelledText, label: str) -> int:
        """The index of a label; a label that is not in the training data is an error with its location."""
        if label not in self.numbers:
            known = ", ".join(self.names[:20]) + ", …" * (len(self.names) > 20)
            reason = f"label {label!r} was not seen in training{nearest(label, self.names)}; known: {known}"
            raise DataError(reason, file=text.source or None, line=text.line or None)
        return self.numbers[label]

    def target(self, text: LabelledText) -> int | NDArray[np.uint8]:
        """The index of a text's label, or in multi-label data a 0/1 vector."""
        numbers = [self.number(text, label) for label in text.labels]
        if self.several:
            ones = np.zeros(len(self), dtype=np.uint8)
            ones[numbers] = 1
            return ones
        if len(numbers) != 1:
            reason = f"{len(numbers)} labels, but each training text has one"
            raise DataError(reason, file=text.source, line=text.line or None)
        return numbers[0]

    def weights(self, choice: Weights) -> list[float] | None:
        """Class weights of the loss; balanced: inverse to the label's frequency.

        In multi-label data: the weight of positive labels.
        """
        if choice == "none":
            return None
        if choice == "balanced":
            if self.several:
                return [(self.examples - count) / count for count in self.counts]
            return [self.examples / (len(self) * count) for count in self.counts]
        for name in choice:
            if name not in self.names:
                known = ", ".join(self.names)
                raise ConfigError(f"class_weights: no label {name!r}{nearest(name, self.names)}; known: {known}")
        return [choice.get(name, 1.0) for name in self.names]

    def save(self, path: str | Path) -> None:
        atomic_write(Path(path), json.dumps(asdict(self), ensure_ascii=False, indent=1).encode())

    @classmethod
    def load(cls, path: str | Path) -> "LabelSet":
        found = read_as(cls, path)
        if not found.names or not len(found.counts) == len(found.names) == len({*found.names}):
            raise DataError("damaged: names and counts do not match", file=path)
        return found


def label_rows(
    texts: Iterable[LabelledText],
    labels: LabelSet,
    encode_batch: Callable[[list[str]], list[NDArray[Any]]],
    *,
    unseen: Literal["error", "count"] = "error",
    max_tokens: int = 0,
    repairs: Repairs | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows of an example store: `text` (ids) and `label` (index or 0/1 vector).

    A text with an unknown label is an error, or removed and counted; a text of more than `max_tokens` tokens is
    truncated and counted.
    """
    repairs = Repairs() if repairs is None else repairs
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        for text, ids in zip(batch, encode_batch([text.text for text in batch]), strict=True):
            if unseen == "count" and not {*text.labels} <= labels.numbers.keys():
                repairs.add(UNSEEN, text.source, text.line)
                continue
            if max_tokens and len(ids) > max_tokens:
                repairs.add(CUT, text.source, text.line)
            yield {"text": ids[:max_tokens] if max_tokens else ids, "label": labels.target(text)}
