"""Tables that other packages read for us: parquet files (pyarrow) and hub data sets (datasets)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from elman.corpus.source_reader import SourceReader
from elman.errors import DataError, MissingExtra, nearest

Rows = Iterator[tuple[tuple[Any, ...], int]]
ROWS = 256  # of a parquet file, in memory at a time


def require_column(reading: SourceReader, names: Iterable[str], column: str | int, line: int | None = None) -> str:
    """A chosen column if it is there, once; else an error that lists those that are."""
    column, known = str(column), list(names)
    if known.count(column) == 1:
        return column
    reason = "occurs more than once" if column in known else f"no such column{nearest(column, known)}"
    shown = ", ".join(repr(name) for name in known[:50]) or "none"
    remedy = "name one of them in data.column, or in data.columns where several are read"
    raise reading.error(f"{reason}; columns: {shown}", line, column, remedy=remedy)


def read_parquet(reading: SourceReader, columns: Sequence[str | int]) -> Rows:
    """Strings come as bytes: pyarrow does not promise that those in a file are valid UTF-8."""
    try:
        import pyarrow  # noqa: F401  (the next line needs it)
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MissingExtra("reading parquet files", "pyarrow", "data") from None
    try:
        with ParquetFile(reading.source.path) as file:
            names = [require_column(reading, file.schema_arrow.names, column) for column in columns]
            line = 0
            for batch in file.iter_batches(batch_size=ROWS, columns=list(dict.fromkeys(names))):
                parts = [_values(reading, batch.column(name), name) for name in names]
                for row in zip(*parts, strict=True):
                    line += 1
                    yield tuple(value.as_py() for value in row), line
    except DataError:
        raise
    except Exception as error:  # a damaged file makes pyarrow raise almost anything
        raise reading.error(f"cannot be read as parquet: {_first_line(error)}") from None


def _values(reading: SourceReader, values: Any, column: str) -> Any:
    from pyarrow import large_binary, types

    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_string(values.type) or types.is_large_string(values.type):
        return values.cast(large_binary())
    if types.is_binary(values.type) or types.is_large_binary(values.type):
        raise reading.error(f"holds {values.type}, not text", column=column)
    return values


def read_hub(reading: SourceReader, columns: Sequence[str | int]) -> Rows:
    """A data set of the hub, or one in a local folder, as it streams."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtra("reading hub data sets", "datasets", "data") from None
    source = reading.source
    address = source.path.as_posix()
    try:
        rows = load_dataset(address, source.config, split=source.split, streaming=True)
        for line, row in enumerate(rows, start=1):
            yield tuple(row[require_column(reading, row, column, line)] for column in columns), line
    except DataError:
        raise
    except Exception as error:  # network, data set scripts, missing splits: each has its own exception
        remedy = "write hub:OWNER/NAME[@CONFIG][#SPLIT], or give a folder on this machine"
        raise reading.error(f"cannot be loaded: {_first_line(error)}", remedy=remedy) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
