"""Parquet files, read with pyarrow."""

from collections.abc import Sequence
from typing import Any

from elman.corpus.formats import RECORD_FORMATS, Column, Fields, RecordFormat, require_column
from elman.corpus.source_reader import SourceReader
from elman.errors import DataError, MissingExtra, first_line

ROWS = 256  # per batch in memory


@RECORD_FORMATS.register("parquet")
class Parquet(RecordFormat):
    """Strings are read as bytes, because pyarrow does not guarantee that they are valid UTF-8."""

    suffixes = (".parquet",)

    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        try:
            import pyarrow  # noqa: F401  (the next line needs it)
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise MissingExtra("reading parquet files", "pyarrow", "data") from None
        try:
            with ParquetFile(reader.source.path) as file:
                names = [require_column(reader, file.schema_arrow.names, column) for column in columns]
                line = 0
                for batch in file.iter_batches(batch_size=ROWS, columns=list(dict.fromkeys(names))):
                    parts = [_values(reader, batch.column(name), name) for name in names]
                    for row in zip(*parts, strict=True):
                        line += 1
                        yield tuple(value.as_py() for value in row), line
        except DataError:
            raise
        except Exception as error:  # pyarrow raises many types of errors for damaged files
            raise reader.error(f"cannot be read as parquet: {first_line(error)}") from None


def _values(reader: SourceReader, values: Any, column: str) -> Any:
    from pyarrow import large_binary, types

    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_string(values.type) or types.is_large_string(values.type):
        return values.cast(large_binary())
    if types.is_binary(values.type) or types.is_large_binary(values.type):
        raise reader.error(f"has type {values.type}, not text", column=column)
    return values
