"""Pairs of texts: two columns of records, or two parallel files."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from elman.corpus.config import DataConfig, DataPaths
from elman.corpus.document import Document, Repairs
from elman.corpus.records import as_text, read_columns, record_documents
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source, locate
from elman.corpus.text import line_documents
from elman.errors import DataError

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
