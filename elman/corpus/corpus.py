"""A corpus: sources as reproducible streams of documents, one per split."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol, Self

from elman.corpus.config import DataConfig
from elman.corpus.document import SPLITS, Document, Repairs, Split
from elman.corpus.hash_split import HashSplit, make_hash_split
from elman.corpus.record_formats import record_documents
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import STANDARD_INPUT, Source, digest, locate, spool
from elman.corpus.text import Passage, block_documents, file_documents, line_documents, passage_of
from elman.errors import ConfigError, DataError

READER_VERSION = 1  # increased when the same bytes are read differently, which invalidates caches


class Language(Protocol):
    """The interface of a synthetic language."""

    def split(self, name: str) -> Iterator[Document]: ...


def open_corpus(
    config: DataConfig,
    tokenizer_type: str = "word",
    languages: Callable[[dict[str, Any]], Language] | None = None,
) -> "Corpus":
    """The corpus of these settings. `languages` creates synthetic languages; default: those of this package."""
    if config.language is None:
        if not (config.train or config.valid or config.test):
            raise ConfigError("no data: set data.train to a file, or data.language to a synthetic language")
        return Corpus(resolve(config, tokenizer_type))
    if languages is None:
        from elman.corpus.synthetic import make_language

        languages = make_language
    return Corpus(resolve(config, tokenizer_type), languages(config.language))


def resolve(config: DataConfig, tokenizer_type: str) -> DataConfig:
    """The settings with `document` and `boundary` resolved from auto."""
    if config.language is not None:
        kind, unit = "a synthetic language", "line"
    else:
        found = [source for split in SPLITS for source in locate(getattr(config, split), config.format, split)]
        texts = [source for source in found if source.format == "text"]
        if 0 < len(texts) < len(found):
            other = next(source for source in found if source.format != "text")
            remedy = "use files of one format only, for example folder/*.jsonl, or set data.format"
            raise DataError(f"text and records ({other.name}) in one corpus", file=texts[0].name, remedy=remedy)
        kind, unit = ("text", "line" if tokenizer_type == "word" else "file") if texts else ("records", "record")
    if config.document != "auto":
        if kind != "text" and config.document != unit:
            raise ConfigError(f"data.document: {config.document!r} is for text files; for {kind} use auto")
        if kind == "text" and config.document == "record":
            raise ConfigError("data.document: 'record' is for tables and JSON lines; text has line, block or file")
        unit = config.document
    boundary = config.boundary
    if boundary == "auto":
        boundary = "carry" if kind == "text" else "reset"
    return config.model_copy(update={"document": unit, "boundary": boundary})


class Corpus:
    """Created by `open_corpus`. `documents(split)` can be called repeatedly; nothing is kept in memory."""

    names: ClassVar[Any] = None
    """Function from a document to its labels or tags: hash splits keep each of them in training."""

    def __init__(self, config: DataConfig, language: Language | None = None):
        assert config.document != "auto"
        assert config.boundary != "auto"
        self.config, self.language = config, language
        self.unit: str = config.document
        self.carry: bool = config.boundary == "carry"
        self._held_out: HashSplit | None = None
        self._passage: Passage | None = None
        self._repairs_read: dict[Split, Repairs] = {}
        self._repairs_later: dict[Split, Repairs] = {}
        self._sources = {split: locate(getattr(config, split), config.format, split) for split in SPLITS}
        self._spool_standard_input()
        self._language_splits = [split for split in SPLITS if language and next(language.split(split), None)]

    def splits(self) -> list[Split]:
        """The existing splits: given, held out of train, or not left empty by a language's settings."""
        if self.language is not None:
            return self._language_splits
        return [split for split in SPLITS if self._sources[split] or self._fraction(split)]

    def sources(self, split: Split) -> list[str]:
        """Names of the sources of a split."""
        return [source.name for source in self._origin(split)]

    def documents(self, split: Split) -> Iterator[Document]:
        """All documents of a split, in order. Fills `repairs_in(split)` while reading."""
        origin = self._origin(split)
        repairs = self._repairs_read[split] = Repairs()
        return self._documents(split, origin, repairs)

    @property
    def repairs(self) -> Repairs:
        """Repairs of the latest readings of all splits; splits that share files count once."""
        total = Repairs()
        by_origin = {tuple(self.sources(split)) or split: repairs for split, repairs in self._repairs_read.items()}
        for repairs in (*by_origin.values(), *self._repairs_later.values()):
            total.merge(repairs)
        return total

    def notice(self, split: Split, repairs: Repairs) -> None:
        """Adds repairs that were found after reading, in one split: truncated texts, invalid tags."""
        self._repairs_later.setdefault(split, Repairs()).merge(repairs)

    def repairs_in(self, split: Split) -> Repairs:
        """Repairs of the latest reading of a split. A held-out split is read, and counted, with all of train."""
        return self._repairs_read.get(split, Repairs())

    def fingerprint(self, split: Split) -> str:
        """A hash of the contents and of every setting that affects the documents, but not of file names."""
        origin = self._origin(split)
        settings = self.config.plain()
        shares = [self._fraction(name) for name in SPLITS]
        content = {
            "reader": READER_VERSION,
            "settings": {name: settings[name] for name in ("document", "boundary", "column", "invalid", "language")},
            "part": [split, shares] if self.language is not None or self._is_cut(split) else None,
            "sources": [(source.format, digest(source)) for source in origin],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def _documents(self, split: Split, origin: list[Source], repairs: Repairs) -> Iterator[Document]:
        if self.language is not None:
            documents = self.language.split(split)
        elif self._is_cut(split):
            held_out = self._hold_out()
            documents = held_out.only(split, self._read(origin, repairs, self._passage), repairs)
        else:
            documents = self._read(origin, repairs)
        empty = True
        for document in documents:
            empty = False
            yield document
        if empty:
            found = "; ".join(repairs.describe())
            where = ", ".join(source.name for source in origin[:3]) or None
            remedy = f"set data.{split} to a separate file" if self._is_cut(split) else None
            raise DataError(f"no documents for {split}" + (f": {found}" if found else ""), file=where, remedy=remedy)

    def _read(self, sources: Iterable[Source], repairs: Repairs, passage: Passage | None = None) -> Iterator[Document]:
        for source in sources:
            yield from self._of_source(SourceReader(source, self.config, repairs), passage)

    def _of_source(self, reader: SourceReader, passage: Passage | None) -> Iterator[Document]:
        """The documents of one source; `passage` is the size of a piece, if a file is one document."""
        if self.unit == "file":
            return file_documents(reader, passage)
        if self.unit == "block":
            return block_documents(reader)
        documents = line_documents(reader) if self.unit == "line" else record_documents(reader)
        return documents if self.carry and self.unit == "line" else _without_empty(documents, reader.repairs)

    def _is_cut(self, split: Split) -> bool:
        """Whether a split is a hash-based part of the training sources."""
        own = split != "train" and self._sources[split]
        return not own and any(self._fraction(name) for name in SPLITS)

    def _hold_out(self) -> HashSplit:
        """The hash split of train, computed once."""
        if self._held_out is None:
            train = self._sources["train"]
            if self.unit == "file":
                self._passage = passage_of(SourceReader(source, self.config, Repairs()) for source in train)
            where = ", ".join(source.name for source in train[:3])
            shares = self._fraction("valid"), self._fraction("test")
            found = make_hash_split(self._read(train, Repairs(), self._passage), *shares, where)
            if self.names is not None:
                found = found.keeping(self._read(train, Repairs(), self._passage), self.names)
            self._held_out = found
        return self._held_out

    def _fraction(self, split: Split) -> float:
        """Share of train that is held out for a split; 0 if it has its own sources."""
        if split == "train" or not self._sources["train"] or self._sources[split]:
            return 0.0
        return self.config.valid_fraction if split == "valid" else self.config.test_fraction

    def _origin(self, split: Split) -> list[Source]:
        if split not in self.splits():
            hint = f"give data.{split} files" + ("" if split == "train" else f" or set data.{split}_fraction")
            raise ConfigError(f"there is no {split!r} split: {hint}")
        return self._sources[split] or self._sources["train"]

    def _spool_standard_input(self) -> None:
        """Copies standard input to a temporary file, because a corpus is read several times."""
        everything = [source.path for sources in self._sources.values() for source in sources]
        if everything.count(STANDARD_INPUT) > 1:
            raise ConfigError("standard input (-) can be used only once")
        for sources in self._sources.values():
            sources[:] = [spool(source, self) if source.path == STANDARD_INPUT else source for source in sources]


class ExampleCorpus(Corpus):
    """A corpus of a task: each document is an example with its labels, target or tags."""

    Config: ClassVar[type[DataConfig]]
    expected: ClassVar[str]
    """What data.train should be, for the error that there is no data."""

    def __init__(self, config: DataConfig, language: Language | None = None):
        if not (config.train or config.valid or config.test or language):
            raise ConfigError(f"no data: give data.train {self.expected}")
        super().__init__(config.model_copy(update={"document": "record", "boundary": "reset"}), language)

    @classmethod
    def open(cls, **settings: Any) -> Self:
        return cls(cls.Config.make(settings, where="data"))

    def fingerprint(self, split: Split) -> str:
        """As in any corpus, plus everything that affects labels, targets or tags."""
        facts = [super().fingerprint(split), *self._facts(split)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @abstractmethod
    def _facts(self, split: Split) -> list[Any]:
        """Everything beyond the documents that affects the examples of a split, as JSON types."""


def _without_empty(documents: Iterable[Document], repairs: Repairs) -> Iterator[Document]:
    """Removes empty documents, and their bytes, if the state is reset between documents."""
    for document in documents:
        if document.text.strip():
            yield document
        else:
            repairs.add("empty document", document.source, document.line)
