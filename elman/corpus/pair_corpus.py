"""Pairs of source and target texts: two columns of records, or two parallel files."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple, Self, cast

from pydantic import Field, field_validator

from elman.corpus.config import DataConfig, DataPaths
from elman.corpus.corpus import Corpus
from elman.corpus.document import SPLITS, Document, PairDocument, Repairs, Split
from elman.corpus.record_formats import columns_without_header
from elman.corpus.records import Column, as_text, read_columns, record_documents, two_columns
from elman.corpus.reversal import ReversalLanguage
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source, digest, locate
from elman.corpus.text import line_documents
from elman.errors import ConfigError, DataError

Columns = tuple[str | int, str | int]
COLUMNS: Columns = ("source", "target")


class Pair(NamedTuple):
    source_text: str
    target_text: str
    source: str = ""  # where it came from
    line: int = 0


def read_pairs(
    source: DataPaths,
    target: DataPaths = None,
    *,
    columns: Columns = COLUMNS,
    config: DataConfig | None = None,
    repairs: Repairs | None = None,
    split: str = "train",
) -> Iterator[Pair]:
    """Streams pairs: with a `target`, of parallel files; without, of two columns of records.

    Columns of a table without a header are numbers, counted from 1. Pairs with an empty side are removed and counted in
    `repairs`. `config` says how files are read; its `train`, `valid`, `test` and `column` are ignored.
    """
    config, repairs = config or DataConfig(), Repairs() if repairs is None else repairs
    sources = locate(source, config.format, split)
    if target is None:
        for place in sources:
            yield from without_empty(pairs_of_columns(place, columns, config, repairs), repairs)
        return
    targets = locate(target, config.format, split)
    if len(sources) != len(targets):
        shown = [", ".join(place.name for place in places[:3]) or "none" for places in (sources, targets)]
        raise DataError(
            f"{len(sources)} source files ({shown[0]}) but {len(targets)} target files ({shown[1]})",
            remedy="each source file needs a target file, in the same order",
        )
    for one, other in zip(sources, targets, strict=True):
        yield from without_empty(pairs_of_files(one, other, config, repairs), repairs)


def pairs_of_columns(place: Source, columns: Columns, config: DataConfig, repairs: Repairs) -> Iterator[Pair]:
    """Pairs of two columns of records."""
    if place.format == "text":
        raise DataError(
            "plain text has no columns for source and target",
            file=place.name,
            remedy="name it .tsv, .csv or .jsonl, set data.format, or give the targets in a separate file",
        )
    reader = SourceReader(place, config, repairs)
    for values, line in read_columns(reader, columns):
        one, other = (as_text(reader, value, line, column) for value, column in zip(values, columns, strict=True))
        yield Pair(one, other, place.name, line)


def pairs_of_files(one: Source, other: Source, config: DataConfig, repairs: Repairs) -> Iterator[Pair]:
    documents = [_documents(SourceReader(place, config, repairs)) for place in (one, other)]
    counts = [0, 0]
    for pair in zip_longest(*documents):
        counts = [count + (part is not None) for count, part in zip(counts, pair, strict=True)]
        if counts[0] == counts[1]:
            yield Pair(pair[0].text, pair[1].text, one.name, pair[0].line)
    if counts[0] != counts[1]:
        raise DataError(
            f"{counts[0]} lines, but {counts[1]} targets in {other.name}",
            file=one.name,
            line=min(counts) + 1,
            remedy="both files need the same number of corresponding lines",
        )


def _documents(reader: SourceReader) -> Iterator[Document]:
    return (line_documents if reader.source.format == "text" else record_documents)(reader)


def without_empty(pairs: Iterator[Pair], repairs: Repairs) -> Iterator[Pair]:
    for pair in pairs:
        sides = ("source", pair.source_text), ("target", pair.target_text)
        empty = [side for side, text in sides if not text.strip()]
        if empty:
            repairs.add(f"pair removed: empty {' and '.join(empty)}", pair.source, pair.line)
        else:
            yield pair


class PairsConfig(DataConfig):
    """Parallel data: tables with two columns, or pairs of files with corresponding lines."""

    language: dict[str, Any] | None = None
    """Synthetic pairs instead of files: {type: reversal, noise: 0.25, train: names.txt}, texts to reverse without the
    digits among their letters."""

    columns: list[Column] | None = None
    """Columns of source and target, by name, or by number in a table without a header: [1, 2]. null: source and target,
    or the first and second column of a two-column table without such a header."""

    train_target: DataPaths = None
    """File with the targets of train, line by line, if train has the sources only."""

    valid_target: DataPaths = None
    """Like train_target, for valid."""

    test_target: DataPaths = None
    """Like train_target, for test."""

    max_tokens: int = Field(0, ge=0)
    """Pairs with more tokens on one side are removed from training; 0: no limit."""

    @field_validator("columns")
    @classmethod
    def _two(cls, columns: list[Column] | None) -> list[Column] | None:
        return two_columns(columns, "the source", "the target")


class PairCorpus(Corpus):
    """`pairs(split)` streams pairs; splits, held-out parts and repairs as in any corpus."""

    config: PairsConfig

    def __init__(self, config: PairsConfig):
        if not (config.train or config.valid or config.test or config.language):
            raise ConfigError("no data: give data.train a table of sources and targets, or also data.train_target")
        language = ReversalLanguage.make(config.language) if config.language else None
        super().__init__(config.model_copy(update={"document": "record", "boundary": "reset"}), language)
        self._targets = {split: self._partners(split) for split in SPLITS}

    @classmethod
    def open(cls, **settings: Any) -> Self:
        return cls(PairsConfig.make(settings, where="data"))

    def pairs(self, split: Split) -> Iterator[PairDocument]:
        return cast(Iterator[PairDocument], self.documents(split))

    def fingerprint(self, split: Split) -> str:
        """As in any corpus, plus everything that affects the targets."""
        targets = [self._targets[name].get(source.name) for name in SPLITS for source in self._origin(split)]
        targets += self.language.sources if isinstance(self.language, ReversalLanguage) else []
        facts = [super().fingerprint(split), self.config.columns, [digest(target) for target in targets if target]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _read(self, sources: Iterable[Source], repairs: Repairs, passage: int | None = None) -> Iterator[Document]:
        for source in sources:
            target = next((targets[source.name] for targets in self._targets.values() if source.name in targets), None)
            if target is None:
                columns = self._columns(source, repairs)
                pairs = pairs_of_columns(source, columns, self.config, repairs)
            else:
                pairs = pairs_of_files(source, target, self.config, repairs)
            for pair in without_empty(pairs, repairs):
                size = len(pair.source_text.encode()) + 1
                yield PairDocument(pair.source_text, pair.source, pair.line, size, target=pair.target_text)

    def _columns(self, source: Source, repairs: Repairs) -> Columns:
        if self.config.columns:
            return cast(Columns, tuple(self.config.columns))
        if source.format == "text":
            return COLUMNS
        return cast(
            Columns, tuple(columns_without_header(SourceReader(source, self.config, repairs), "source", "target"))
        )

    def _partners(self, split: Split) -> dict[str, Source]:
        sources, targets = self._sources[split], locate(getattr(self.config, f"{split}_target"), "auto", split)
        if targets and len(sources) != len(targets):
            raise DataError(
                f"data.{split} has {len(sources)} files, but data.{split}_target has {len(targets)}",
                remedy="each source file needs a target file, in the same order",
            )
        return {source.name: target for source, target in zip(sources, targets, strict=bool(targets))}
