"""Sentences with a tag for each word: columns as in the CoNLL shared tasks, and CoNLL-U of Universal Dependencies."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from elman.config import Config
from elman.corpus.config import DataConfig, Places
from elman.corpus.document import Repairs
from elman.corpus.lines import whole_lines
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import STANDARD_INPUT, Source, locate, spool
from elman.errors import ConfigError, DataError, nearest

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
GAPS = re.compile("[ \t]+")  # no others: words may hold a no-break space
DOCUMENT = "-DOCSTART-"  # a line that begins a document in CoNLL-2003, and no sentence
NUMBER = re.compile(r"[0-9]+")
RANGE = re.compile(r"[0-9]+-[0-9]+")  # a surface token of several words
EMPTY = re.compile(r"[0-9]+\.[0-9]+")  # a word that is not in the text


class ColumnsConfig(Config):
    """Which columns hold words and tags."""

    format: Literal["auto", "conll", "conllu"] = "auto"
    """Plain columns or CoNLL-U; auto goes by the end of the file's name, .gz looked through."""
    word: int | str | None = None
    """Column of the words, counted from 1, or from the end with -1; CoNLL-U also knows names. Null: 1, and form."""
    tag: int | str | None = None
    """Column of the tags, like word: -1, upos, xpos, feats. Null: the last, and upos. None of them: 0."""
    separator: Literal["auto", "tab", "space"] = "auto"
    """What stands between plain columns: a tab, or spaces and tabs; auto: tabs if the file's first words have one."""
    comment: str | None = Field(None, min_length=1)
    """What lines begin with that are no words. Null: # in CoNLL-U; in plain columns # too, but only above a
    sentence and where the number of fields is not that of its words, for # is also a word."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.word == 0:
            raise ValueError("word: columns are counted from 1")
        return self


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence: as many tags as words, or none where they were not asked for."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    source: str = ""
    line: int = 0  # of its first word


class _Row(NamedTuple):
    text: str
    line: int


def read_tagged(
    places: Places,
    columns: ColumnsConfig | None = None,
    data: DataConfig | None = None,
    repairs: Repairs | None = None,
) -> Iterator[Tagged]:
    """All sentences of files, folders or patterns, as they stream; `repairs` counts what was mended."""
    columns, data, repairs = columns or ColumnsConfig(), data or DataConfig(), Repairs() if repairs is None else repairs
    for source in locate(places):
        if source.format in ("hub", "parquet"):
            raise DataError("holds no columns of words and tags", file=source.name, remedy="give a CoNLL file")
        here = spool(source, repairs) if source.path == STANDARD_INPUT else source
        yield from sentences(SourceReader(here, data, repairs), columns)


def sentences(reading: SourceReader, columns: ColumnsConfig) -> Iterator[Tagged]:
    """The sentences of one file."""
    table = _CoNLLU(reading, columns) if _is_conllu(reading.source, columns) else _Columns(reading, columns)
    for block in _blocks(reading):
        sentence = table.sentence(block)
        if sentence is not None:
            yield sentence


def _is_conllu(source: Source, columns: ColumnsConfig) -> bool:
    if columns.format != "auto":
        return columns.format == "conllu"
    return source.name.lower().removesuffix(".gz").endswith((".conllu", ".conllup"))


def _blocks(reading: SourceReader) -> Iterator[list[_Row]]:
    """Lines up to each blank one; no block may take more than `max_record_bytes`."""
    block: list[_Row] = []
    size = 0
    for line in whole_lines(reading):
        text = reading.decode(line.raw, line.number)
        if text.strip(" \t"):
            block.append(_Row(text, line.number))
            size += line.size
            if size > reading.config.max_record_bytes:
                remedy = "a blank line ends a sentence; or raise data.max_record_bytes"
                limit = reading.config.max_record_bytes
                raise reading.error(f"the sentence is longer than {limit} bytes", block[0].line, remedy=remedy)
        elif block:
            yield block
            block, size = [], 0
    if block:
        yield block


class _Columns:
    """Plain columns: as many in each row as in the file's first."""

    def __init__(self, reading: SourceReader, columns: ColumnsConfig):
        self.reading, self.settings = reading, columns
        self.tabs = columns.separator == "tab"
        self.width = self.first = 0
        for name in (columns.word, columns.tag):
            if isinstance(name, str):
                raise ConfigError(f"column {name!r}: only CoNLL-U names its columns; give a number, counted from 1")

    def sentence(self, block: list[_Row]) -> Tagged | None:
        rows = self._without_comments(block)
        if not rows:
            return None
        cells = [self._cells(row) for row in rows]
        words = [self._cell(cell, row, self.settings.word or 1) for cell, row in zip(cells, rows, strict=True)]
        if words == [DOCUMENT]:
            return None
        tag = -1 if self.settings.tag is None else self.settings.tag
        tags = [self._cell(cell, row, tag) for cell, row in zip(cells, rows, strict=True)] if tag else []
        return Tagged(tuple(words), tuple(tags), self.reading.source.name, rows[0].line)

    def _without_comments(self, block: list[_Row]) -> list[_Row]:
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
                raise self.reading.error("one column only: a word, and no tag", row.line, remedy="tag: 0 needs none")
        if len(cells) != self.width:
            kind = "separated by tabs" if self.tabs else "separated by spaces"
            reason = f"{len(cells)} fields ({kind}) where line {self.first} has {self.width}"
            remedy = "give each word its columns; comment and separator say what else the lines are"
            raise self.reading.error(reason, row.line, remedy=remedy)
        return cells

    def _cell(self, cells: list[str], row: _Row, column: int | str) -> str:
        assert isinstance(column, int)
        if not 1 <= abs(column) <= len(cells):
            raise self.reading.error(f"there are {len(cells)} columns", row.line, column, remedy="choose one of them")
        return self._filled(cells[column - 1 if column > 0 else column], row, column)

    def _filled(self, text: str, row: _Row, column: int | str) -> str:
        text = text.strip(" ")
        if not text:
            raise self.reading.error("is empty", row.line, column, remedy="each word and each tag needs a text")
        return text


class _CoNLLU(_Columns):
    """Ten columns. The words of a surface token (`1-2`) count, it does not; nor do words that are not in the text."""

    def __init__(self, reading: SourceReader, columns: ColumnsConfig):
        self.reading, self.settings, self.tabs = reading, columns, True
        self.width, self.first = len(CONLLU), 0
        self.word = _numbered("form" if columns.word is None else columns.word)
        self.tag = _numbered("upos" if columns.tag is None else columns.tag)

    def sentence(self, block: list[_Row]) -> Tagged | None:
        comment = self.settings.comment or "#"
        words: list[str] = []
        tags: list[str] = []
        line = 0
        for row in block:
            if row.text.startswith(comment):
                continue
            cells = self._cells(row)
            if RANGE.fullmatch(cells[0]) or EMPTY.fullmatch(cells[0]):
                continue
            if not NUMBER.fullmatch(cells[0]) or int(cells[0]) != len(words) + 1:
                expected = f"{len(words) + 1}, a range such as 1-2 or an empty node such as 1.1"
                remedy = "words are numbered from 1 in each sentence, and a blank line ends it"
                raise self.reading.error(f"id {cells[0]!r} where {expected} is due", row.line, "id", remedy=remedy)
            line = line or row.line
            words.append(self._cell(cells, row, self.word))
            tags += [self._cell(cells, row, self.tag)] if self.tag else []
        return Tagged(tuple(words), tuple(tags), self.reading.source.name, line) if words else None

    def _cells(self, row: _Row) -> list[str]:
        cells = row.text.split("\t")
        if len(cells) != self.width:
            reason = f"{len(cells)} fields, separated by tabs, where CoNLL-U has {self.width}"
            raise self.reading.error(reason, row.line, remedy="for other columns set format: conll")
        return cells


def _numbered(column: int | str) -> int:
    if isinstance(column, int):
        return column
    if column not in CONLLU:
        raise ConfigError(f"no column {column!r} in CoNLL-U{nearest(column, CONLLU)}; there are {', '.join(CONLLU)}")
    return CONLLU.index(column) + 1
