"""Pairs of source and target texts: two columns of records, two parallel files, or noisy reversals of texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
from pydantic import Field

from elman.config import Config
from elman.corpus.config import Column, DataConfig, DataPaths, TwoColumnConfig
from elman.corpus.corpus import ExampleCorpus
from elman.corpus.document import SPLITS, PairDocument, Repairs, Split
from elman.corpus.record_formats import as_text, columns_without_header, read_columns, record_documents
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source, digest, locate
from elman.corpus.text import Passage, line_documents
from elman.errors import DataError

NOISE = "0123456789"


class Reversal(NamedTuple):
    source: str  # the text with noise characters
    target: str  # the text reversed
    places: tuple[int, ...]  # source position of each target character


def noisy_reversals(texts: Iterable[str], noise: float = 0.25, seed: int = 0) -> Iterator[Reversal]:
    """One pair per text; a random digit precedes each letter, and the end, with probability `noise`."""
    rng = np.random.default_rng(seed)
    for text in texts:
        before = rng.random(len(text) + 1) < noise
        signs = rng.integers(len(NOISE), size=len(text) + 1)
        pieces = [NOISE[sign] if noisy else "" for noisy, sign in zip(before, signs, strict=True)]
        source = "".join(piece + letter for piece, letter in zip(pieces, [*text, ""], strict=True))
        places = np.arange(len(text)) + before[:-1].cumsum()
        yield Reversal(source, text[::-1], tuple(places[::-1].tolist()))


def random_words(
    count: int, letters: str = "abcdefgh", shortest: int = 2, longest: int = 6, seed: int = 0
) -> list[str]:
    """Random words to reverse."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(shortest, longest + 1, size=count)
    return ["".join(rng.choice(list(letters), size=size)) for size in sizes]


class ReversalConfig(Config):
    """Settings of the noisy reversal task."""

    type: Literal["reversal"] = "reversal"
    train: DataPaths = None
    """Training texts, one per line; null: random words."""
    valid: DataPaths = None
    """Validation texts."""
    test: DataPaths = None
    """Test texts."""
    noise: float = Field(0.25, ge=0, le=1)
    """Probability of a digit before each letter, and at the end, which must be removed."""
    words: int = Field(4000, ge=10)
    """Number of random training words, if no texts are given; a tenth of it for each of valid and test."""
    shortest: int = Field(2, ge=1)
    """Minimum length of random words."""
    longest: int = Field(10, ge=1)
    """Maximum length of random words."""
    seed: int = Field(0, ge=0)
    """Random seed of words and noise."""


class ReversalLanguage:
    """Pairs of a noisy text and its reversal, with their alignment."""

    def __init__(self, settings: Mapping[str, Any]):
        self.config = ReversalConfig.make(settings, where="data.language")
        self.sources = [source for split in SPLITS for source in locate(getattr(self.config, split), "text", split)]

    def split(self, name: str) -> Iterator[PairDocument]:
        seed = self.config.seed + SPLITS.index(name)
        for number, found in enumerate(noisy_reversals(self._texts(name, seed), self.config.noise, seed), start=1):
            size = len(found.source) + 1
            yield PairDocument(found.source, name, number, size, target=found.target, places=found.places)

    def _texts(self, name: str, seed: int) -> Iterator[str]:
        config, given = self.config, getattr(self.config, name)
        if given:
            for source in locate(given, "text", name):
                documents = line_documents(SourceReader(source, DataConfig(), Repairs()))
                yield from (document.text for document in documents if document.text.strip())
        elif not config.train:
            count = config.words if name == "train" else max(1, config.words // 10)
            yield from random_words(count, shortest=config.shortest, longest=config.longest, seed=seed)


class Pair(NamedTuple):
    source_text: str
    target_text: str
    source: str = ""  # where it came from
    line: int = 0


def read_pairs(
    source: DataPaths,
    target: DataPaths = None,
    *,
    columns: Sequence[Column] = ("source", "target"),
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
    targets = [None] * len(sources) if target is None else locate(target, config.format, split)
    if len(sources) != len(targets):
        shown = [", ".join(place.name for place in places[:3] if place) or "none" for places in (sources, targets)]
        reason = f"{len(sources)} source files ({shown[0]}) but {len(targets)} target files ({shown[1]})"
        raise DataError(reason, remedy="each source file needs a target file, in the same order")
    for one, other in zip(sources, targets, strict=True):
        yield from _pairs(SourceReader(one, config, repairs), other, columns)


def _pairs(reader: SourceReader, target: Source | None, columns: Sequence[Column] | None) -> Iterator[Pair]:
    """Pairs of two columns of records or, with a `target`, of two parallel files; without those with an empty side."""
    for pair in _of_columns(reader, columns) if target is None else _of_files(reader, target):
        sides = ("source", pair.source_text), ("target", pair.target_text)
        empty = [side for side, text in sides if not text.strip()]
        if empty:
            reader.repair(f"pair removed: empty {' and '.join(empty)}", pair.line)
        else:
            yield pair


def _of_columns(reader: SourceReader, columns: Sequence[Column] | None) -> Iterator[Pair]:
    if reader.source.format == "text":
        remedy = "name it .tsv, .csv or .jsonl, set data.format, or give the targets in a separate file"
        raise reader.error("plain text has no columns for source and target", remedy=remedy)
    columns = columns or columns_without_header(reader, "source", "target")
    for values, line in read_columns(reader, columns):
        one, other = (as_text(reader, value, line, column) for value, column in zip(values, columns, strict=True))
        yield Pair(one, other, reader.source.name, line)


def _of_files(reader: SourceReader, target: Source) -> Iterator[Pair]:
    readers = reader, replace(reader, source=target)
    documents = [line_documents(one) if one.source.format == "text" else record_documents(one) for one in readers]
    counts = [0, 0]
    for pair in zip_longest(*documents):
        counts = [count + (part is not None) for count, part in zip(counts, pair, strict=True)]
        if counts[0] == counts[1]:
            yield Pair(pair[0].text, pair[1].text, reader.source.name, pair[0].line)
    if counts[0] != counts[1]:
        remedy = "both files need the same number of corresponding lines"
        reason = f"{counts[0]} lines, but {counts[1]} targets in {target.name}"
        raise reader.error(reason, min(counts) + 1, remedy=remedy)


class PairsConfig(TwoColumnConfig):
    """Parallel data: tables with two columns, or pairs of files with corresponding lines."""

    sides: ClassVar = ("source", "target")

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


class PairCorpus(ExampleCorpus):
    """`pairs(split)` streams pairs; splits, held-out parts and repairs as in any corpus."""

    Config = PairsConfig
    config: PairsConfig
    expected = "a table of sources and targets, or also data.train_target"

    def __init__(self, config: PairsConfig):
        super().__init__(config, ReversalLanguage(config.language) if config.language else None)
        self._targets = {split: self._partners(split) for split in SPLITS}

    def pairs(self, split: Split) -> Iterator[PairDocument]:
        return cast(Iterator[PairDocument], self.documents(split))

    def _facts(self, split: Split) -> list[Any]:
        targets = [self._targets[name].get(source.name) for name in SPLITS for source in self._origin(split)]
        targets += self.language.sources if isinstance(self.language, ReversalLanguage) else []
        return [self.config.columns, [digest(target) for target in targets if target]]

    def _of_source(self, reader: SourceReader, passage: Passage | None = None) -> Iterator[PairDocument]:
        name = reader.source.name
        target = next((targets[name] for targets in self._targets.values() if name in targets), None)
        for pair in _pairs(reader, target, self.config.columns):
            size = len(pair.source_text.encode()) + 1
            yield PairDocument(pair.source_text, pair.source, pair.line, size, target=pair.target_text)

    def _partners(self, split: Split) -> dict[str, Source]:
        sources, targets = self._sources[split], locate(getattr(self.config, f"{split}_target"), "auto", split)
        if targets and len(sources) != len(targets):
            reason = f"data.{split} has {len(sources)} files, but data.{split}_target has {len(targets)}"
            raise DataError(reason, remedy="each source file needs a target file, in the same order")
        return {source.name: target for source, target in zip(sources, targets, strict=bool(targets))}
