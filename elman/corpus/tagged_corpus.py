"""Tagged sentences: columns as in the CoNLL shared tasks, and CoNLL-U of Universal Dependencies."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from elman.config import Config
from elman.corpus.config import RECORD_FORMATS, TEXT, DataConfig, DataPaths, Record, Table
from elman.corpus.corpus import ExampleCorpus
from elman.corpus.document import Document, Repairs, Split
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import STANDARD_INPUT, locate, spool
from elman.corpus.text import Passage, whole_lines
from elman.errors import ConfigError, DataError, nearest

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
GAPS = re.compile("[ \t]+")  # words may contain other whitespace, such as no-break spaces
DOCUMENT = "-DOCSTART-"  # marks the start of a document in CoNLL-2003
RANGE = re.compile(r"[0-9]+-[0-9]+")  # a multiword token
EMPTY = re.compile(r"[0-9]+\.[0-9]+")  # an empty node


class ColumnsConfig(Config):
    """Columns of words and tags."""

    format: Literal["auto", "conll", "conllu"] = "auto"
    """Plain columns or CoNLL-U; auto: by file name suffix, ignoring .gz."""
    word: int | str | None = None
    """Column of words, counted from 1, or from the end with -1; in CoNLL-U also a name. null: 1, or form in CoNLL-U."""
    tag: int | str | None = None
    """Column of tags, like word: -1, upos, xpos, feats. null: the last, or upos in CoNLL-U. 0: no tags."""
    separator: Literal["auto", "tab", "space"] = "auto"
    """Separator of plain columns: a tab, or spaces and tabs; auto: tab if the first row contains one."""
    comment: str | None = Field(None, min_length=1)
    """Prefix of comment lines. null: # in CoNLL-U; in plain columns also #, but only above a sentence and with another
    number of fields than its words, because # is also a word."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.word == 0:
            raise ValueError("word: columns are counted from 1")
        return self


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence with one tag per word, or no tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    source: str = ""
    line: int = 0  # line of its first word


class _Row(NamedTuple):
    text: str
    line: int


def read_tagged(
    places: DataPaths,
    columns: ColumnsConfig | None = None,
    data: DataConfig | None = None,
    repairs: Repairs | None = None,
) -> Iterator[TaggedSentence]:
    """Streams all sentences of files, folders or patterns; `repairs` counts repaired input."""
    columns, data, repairs = columns or ColumnsConfig(), data or DataConfig(), Repairs() if repairs is None else repairs
    for source in locate(places):
        here = spool(source, repairs) if source.path == STANDARD_INPUT else source
        yield from sentences(SourceReader(here, data, repairs), columns)


def sentences(reader: SourceReader, columns: ColumnsConfig) -> Iterator[TaggedSentence]:
    """The sentences of one file."""
    table = _columns(reader, columns)
    for block in _blocks(reader):
        sentence = table.sentence(block)
        if sentence is not None:
            yield sentence


def _columns(reader: SourceReader, columns: ColumnsConfig) -> "_Columns":
    source = reader.source
    if source.format != TEXT and not RECORD_FORMATS[source.format].delimited:
        raise DataError("has no columns of words and tags", file=source.name, remedy="give a CoNLL file")
    named = source.name.lower().removesuffix(".gz").endswith((".conllu", ".conllup"))
    conllu = named if columns.format == "auto" else columns.format == "conllu"
    return _CoNLLU(reader, columns) if conllu else _Columns(reader, columns)


class TaggedLine(NamedTuple):
    """A line of a CoNLL file."""

    text: str
    word: int | None  # index in the sentence; None for comments, multiword tokens and marks of documents
    comment: bool


def tagged_table(reader: SourceReader, columns: ColumnsConfig) -> Table:
    """The sentences of one file as records of `words` and `rows` (lines); columns of tags are not needed."""
    table = _columns(reader, columns.model_copy(update={"tag": 0}))

    def records() -> Iterator[Record]:
        for block in _blocks(reader):
            found = table.word_cells(block)
            words = [text for _, text in found]
            words = [] if words == [DOCUMENT] else words
            places = {row.line: place for place, (row, _) in enumerate(found)} if words else {}
            kept = {row.line for row in table.without_comments(block)}
            rows = [TaggedLine(row.text, places.get(row.line), row.line not in kept) for row in block]
            yield Record(("words", "rows"), (words, rows), block[0].line)

    return Table(("words", "rows"), records())


def _blocks(reader: SourceReader) -> Iterator[list[_Row]]:
    """Groups of lines between blank lines; at most `max_record_bytes` each."""
    block: list[_Row] = []
    size = 0
    for line in whole_lines(reader):
        text = reader.decode(line.raw, line.number)
        if text.strip(" \t"):
            block.append(_Row(text, line.number))
            size += line.size
            if size > (limit := reader.config.max_record_bytes):
                remedy = "end sentences with a blank line, or raise data.max_record_bytes"
                raise reader.error(f"the sentence is longer than {limit} bytes", block[0].line, remedy=remedy)
        elif block:
            yield block
            block, size = [], 0
    if block:
        yield block


class _Columns:
    """Plain columns; every row has as many as the first row of the file."""

    width = first = 0  # number of columns, and the line that shows it
    default_word: int | str = 1
    default_tag: int | str = -1

    def __init__(self, reader: SourceReader, columns: ColumnsConfig):
        self.reader, self.settings = reader, columns
        self.tabs = columns.separator == "tab"
        self.word = self._number(columns.word, self.default_word)
        self.tag = self._number(columns.tag, self.default_tag)

    def _number(self, column: int | str | None, default: int | str) -> int:
        if isinstance(column, str):
            raise ConfigError(f"column {column!r}: only CoNLL-U has column names; give a number: --columns 1,4")
        return int(default) if column is None else column

    def sentence(self, block: list[_Row]) -> TaggedSentence | None:
        rows = self._words(block)
        words = tuple(self._cell(cells, row, self.word) for row, cells in rows)
        if words in ((), (DOCUMENT,)):
            return None
        tags = tuple(self._cell(cells, row, self.tag) for row, cells in rows if self.tag)
        return TaggedSentence(words, tags, self.reader.source.name, rows[0][0].line)

    def word_cells(self, block: list[_Row]) -> list[tuple[_Row, str]]:
        """The rows that are words, each with its word."""
        return [(row, self._cell(cells, row, self.word)) for row, cells in self._words(block)]

    def _words(self, block: list[_Row]) -> list[tuple[_Row, list[str]]]:
        """The rows that are words, and their cells."""
        return [(row, self._cells(row)) for row in self.without_comments(block)]

    def without_comments(self, block: list[_Row]) -> list[_Row]:
        if self.settings.comment is not None:
            return [row for row in block if not row.text.startswith(self.settings.comment)]
        if not self.width and self.settings.separator == "auto":
            self.tabs = "\t" in block[-1].text.strip(" \t")
        width = self.width or len(self._split(block[-1]))
        first = 0
        while first < len(block) and block[first].text.startswith("#") and len(self._split(block[first])) != width:
            first += 1
        return block[first:]

    def _split(self, row: _Row) -> list[str]:
        return row.text.split("\t") if self.tabs else GAPS.split(row.text.strip(" \t"))

    def _cells(self, row: _Row) -> list[str]:
        if not self.width and self.settings.separator == "auto":
            self.tabs = "\t" in row.text.strip(" \t")
        cells = self._split(row)
        if not self.width:
            self.width, self.first = len(cells), row.line
            if self.width == 1 and self.settings.tag != 0:
                remedy = "give a word and its tag on each line; --columns WORD,TAG names their columns"
                raise self.reader.error("only one column: a word without a tag", row.line, remedy=remedy)
        if len(cells) != self.width:
            separated = "separated by tabs" if self.tabs else "separated by spaces"
            reason = f"{len(cells)} fields ({separated}), but line {self.first} has {self.width}"
            remedy = "each word needs all columns; see the settings comment and separator"
            raise self.reader.error(reason, row.line, remedy=remedy)
        return cells

    def _cell(self, cells: list[str], row: _Row, column: int) -> str:
        if not 1 <= abs(column) <= len(cells):
            raise self.reader.error(
                f"there are {len(cells)} columns", row.line, column, remedy="choose two with --columns WORD,TAG"
            )
        text = cells[column - 1 if column > 0 else column].strip(" ")
        if not text:
            raise self.reader.error(
                "is empty", row.line, column, remedy="fill it, or choose other columns with --columns"
            )
        return text


class _CoNLLU(_Columns):
    """Ten columns. Words of a multiword token (`1-2`) count, the token itself and empty nodes do not."""

    width, default_word, default_tag = len(CONLLU), "form", "upos"

    def _number(self, column: int | str | None, default: int | str) -> int:
        column = default if column is None else column
        if isinstance(column, int):
            return column
        if column not in CONLLU:
            known = ", ".join(CONLLU)
            raise ConfigError(f"--columns: no column {column!r} in CoNLL-U{nearest(column, CONLLU)}; known: {known}")
        return CONLLU.index(column) + 1

    def _words(self, block: list[_Row]) -> list[tuple[_Row, list[str]]]:
        words: list[tuple[_Row, list[str]]] = []
        for row in self.without_comments(block):
            cells = self._cells(row)
            if RANGE.fullmatch(cells[0]) or EMPTY.fullmatch(cells[0]):
                continue
            if cells[0] != str(len(words) + 1):
                expected = f"{len(words) + 1}, a range such as 1-2 or an empty node such as 1.1"
                remedy = "words are numbered from 1 in each sentence, which ends with a blank line"
                raise self.reader.error(f"id {cells[0]!r} where {expected} is expected", row.line, "id", remedy=remedy)
            words.append((row, cells))
        return words

    def without_comments(self, block: list[_Row]) -> list[_Row]:
        return [row for row in block if not row.text.startswith(self.settings.comment or "#")]

    def _cells(self, row: _Row) -> list[str]:
        cells = row.text.split("\t")
        if len(cells) != self.width:
            reason = f"{len(cells)} tab-separated fields, but CoNLL-U has {self.width}"
            raise self.reader.error(reason, row.line, remedy="for other columns set format: conll")
        return cells


class TaggedConfig(DataConfig):
    """Columns of tagged sentences, and the tagging scheme."""

    columns: ColumnsConfig = ColumnsConfig()
    """Columns of words and tags."""

    scheme: Literal["auto", "none", "iob1", "bio", "bioes"] = "auto"
    """Tagging scheme of entities, which excludes invalid tag sequences; auto: detected from the data."""


NO_SENTENCE = TaggedSentence(())


@dataclass(frozen=True, slots=True)
class TaggedDocument(Document):
    """A text with its words and tags."""

    tagged: TaggedSentence = NO_SENTENCE


class TaggedCorpus(ExampleCorpus):
    """`sentences(split)` streams tagged sentences; splits, held-out parts and repairs as in any corpus."""

    Config = TaggedConfig
    config: TaggedConfig
    expected = "a file with a word and its tag on each line"
    names: ClassVar = staticmethod(lambda sentence: sentence.tagged.tags)

    def sentences(self, split: Split) -> Iterator[TaggedSentence]:
        return (document.tagged for document in self.documents(split) if isinstance(document, TaggedDocument))

    def _facts(self, split: Split) -> list[Any]:
        return [self.config.columns.plain()]

    def _of_source(self, reader: SourceReader, passage: Passage | None = None) -> Iterator[TaggedDocument]:
        for tagged in sentences(reader, self.config.columns):
            text = " ".join(tagged.words)
            yield TaggedDocument(text, tagged.source, tagged.line, len(text.encode()) + 1, tagged=tagged)
