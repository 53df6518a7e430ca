"""JSON lines: one object per line."""

import json
from collections.abc import Sequence

from elman.corpus.formats import RECORD_FORMATS, Column, Fields, RecordFormat, require_column
from elman.corpus.lines import whole_lines
from elman.corpus.source_reader import SourceReader
from elman.errors import DataError


@RECORD_FORMATS.register("jsonl")
class JsonLines(RecordFormat):
    """One JSON object per line."""

    suffixes = (".jsonl", ".ndjson", ".json")

    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        for line in whole_lines(reader):
            text = reader.decode(line.raw, line.number)
            if not text.strip():
                yield (None,) * len(columns), line.number
                continue
            try:
                record = json.loads(text)
            except json.JSONDecodeError as error:
                raise _invalid(reader, f"not valid JSON: {error.msg}", line.number, error.colno) from None
            except RecursionError:
                raise _invalid(reader, "JSON nested too deeply", line.number) from None
            except ValueError as error:  # numbers of thousands of digits
                raise _invalid(reader, f"unreadable JSON: {error}", line.number) from None
            if not isinstance(record, dict):
                raise _invalid(reader, f"a JSON {type(record).__name__}, not an object", line.number)
            yield tuple(record[require_column(reader, record, column, line.number)] for column in columns), line.number


def _invalid(reader: SourceReader, reason: str, line: int, column: int | None = None) -> DataError:
    return reader.error(reason, line, column, remedy='give one object on each line: {"text": "..."}')
