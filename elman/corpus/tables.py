"""Tables that other packages read for us: parquet files (pyarrow) and hub data sets (datasets)."""

from collections.abc import Iterable, Iterator
from typing import Any

from elman.corpus.reading import Reading
from elman.errors import DataError, MissingExtra, nearest

ROWS = 256  # of a parquet file, in memory at a time


def require_column(reading: Reading, names: Iterable[str], line: int | None = None) -> str:
    """The chosen column if it is there, once; else an error that lists those that are."""
    column, known = str(reading.config.column), list(names)
    if known.count(column) == 1:
        return column
    reason = "occurs more than once" if column in known else f"no such column{nearest(column, known)}"
    shown = ", ".join(repr(name) for name in known[:50]) or "none"
    raise reading.error(f"{reason}; columns: {shown}", line, column, remedy="name one of them in data.column")


def read_parquet(reading: Reading) -> Iterator[tuple[bytes | None, int]]:
    """The values as bytes: pyarrow does not promise that strings in a file are valid UTF-8."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MissingExtra("reading parquet files", "pyarrow", "data") from None
    try:
        with ParquetFile(reading.source.path) as file:
            column = require_column(reading, file.schema_arrow.names)
            kind = file.schema_arrow.field(column).type
            line = 0
            for batch in file.iter_batches(batch_size=ROWS, columns=[column]):
                for value in _texts(reading, batch.column(0), kind).cast(pyarrow.large_binary()):
                    line += 1
                    yield value.as_py(), line
    except DataError:
        raise
    except Exception as error:  # a damaged file makes pyarrow raise almost anything
        raise reading.error(f"cannot be read as parquet: {_first_line(error)}") from None


def _texts(reading: Reading, values: Any, kind: Any) -> Any:
    from pyarrow import types

    if types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise reading.error(f"holds {kind}, not text", column=reading.config.column)
    return values


def read_hub(reading: Reading) -> Iterator[tuple[Any, int]]:
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
            yield row[require_column(reading, row, line)], line
    except DataError:
        raise
    except Exception as error:  # network, data set scripts, missing splits: each has its own exception
        remedy = "write hub:OWNER/NAME[@CONFIG][#SPLIT], or give a folder on this machine"
        raise reading.error(f"cannot be loaded: {_first_line(error)}", remedy=remedy) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
