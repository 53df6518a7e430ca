"""A corpus of source and target texts: two columns of records, or two parallel files."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Self, cast

from pydantic import Field, field_validator

from elman.corpus.config import DataConfig, DataPaths
from elman.corpus.corpus import SPLITS, Corpus, Split
from elman.corpus.delimited import columns_without_header
from elman.corpus.document import Document, PairDocument, Repairs
from elman.corpus.formats import Column
from elman.corpus.pair_reader import COLUMNS, Columns, pairs_of_columns, pairs_of_files, without_empty
from elman.corpus.records import two_columns
from elman.corpus.reversal import ReversalLanguage
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source, digest, locate
from elman.errors import ConfigError, DataError


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
