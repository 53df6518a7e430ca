"""Pairs of texts: two columns of one table, or two files whose lines belong together."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from elman.corpus.config import DataConfig, Places
from elman.corpus.document import Document, Repairs
from elman.corpus.records import record_documents
from elman.corpus.source_reader import SourceReader
from elman.corpus.sources import Source, locate
from elman.corpus.text import line_documents
from elman.errors import DataError

Columns = tuple[str | int, str | int]
COLUMNS: Columns = ("source", "target")
APART = ("parquet", "hub")  # read by columns: what is mended in one is not seen in the other


class Pair(NamedTuple):
    source_text: str
    target_text: str
    source: str = ""  # where it came from
    line: int = 0


def read_pairs(
    source: Places,
    target: Places = None,
    *,
    columns: Columns = COLUMNS,
    config: DataConfig | None = None,
    repairs: Repairs | None = None,
    split: str = "train",
) -> Iterator[Pair]:
    """Pairs one after another: with a `target`, of files side by side; without, of two columns of records.

    Columns of a table without a header are numbers, counted from 1. A pair with an empty side is left out and counted
    in `repairs`. `config` says how files are read; its `train`, `valid`, `test` and `column` are not looked at.
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
    """The file is read twice side by side, once for each column; lines mended in both readings count once."""
    if place.format == "text":
        raise DataError(
            "plain text has no columns for source and target",
            file=place.name,
            remedy="name it .tsv, .csv or .jsonl, set data.format, or give the targets in a file of their own",
        )
    found = [Repairs(), Repairs()]
    readings = [
        SourceReader(place, config.model_copy(update={"column": column}), counted)
        for column, counted in zip(columns, found, strict=True)
    ]
    for one, other in zip(*map(record_documents, readings), strict=True):
        yield Pair(one.text, other.text, one.source, one.line)
    if place.format not in APART:
        found[1].counts -= found[0].counts
        found[1].first = {kind: where for kind, where in found[1].first.items() if kind in found[1].counts}
    for counted in found:
        repairs.merge(counted)


def pairs_of_files(one: Source, other: Source, config: DataConfig, repairs: Repairs) -> Iterator[Pair]:
    documents = [_documents(SourceReader(place, config, repairs)) for place in (one, other)]
    counts = [0, 0]
    for pair in zip_longest(*documents):
        counts = [count + (part is not None) for count, part in zip(counts, pair, strict=True)]
        if counts[0] == counts[1]:
            yield Pair(pair[0].text, pair[1].text, one.name, pair[0].line)
    if counts[0] != counts[1]:
        raise DataError(
            f"{counts[0]} lines, but its targets in {other.name} have {counts[1]}",
            file=one.name,
            line=min(counts) + 1,
            remedy="line by line, the two files must belong together",
        )


def _documents(reading: SourceReader) -> Iterator[Document]:
    return (line_documents if reading.source.format == "text" else record_documents)(reading)


def without_empty(pairs: Iterator[Pair], repairs: Repairs) -> Iterator[Pair]:
    for pair in pairs:
        empty = [
            side for side, text in (("source", pair.source_text), ("target", pair.target_text)) if not text.strip()
        ]
        if empty:
            repairs.add(f"pair left out: empty {' and '.join(empty)}", pair.source, pair.line)
        else:
            yield pair
