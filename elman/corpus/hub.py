"""Data sets of the Hugging Face hub or of a local folder, streamed with `datasets`."""

from collections.abc import Sequence

from elman.corpus.formats import RECORD_FORMATS, Column, Fields, RecordFormat, require_column
from elman.corpus.source_reader import SourceReader
from elman.errors import DataError, MissingExtra, first_line


@RECORD_FORMATS.register("hub")
class HubDataset(RecordFormat):
    """A data set of the Hugging Face hub, or one in a local folder."""

    def read(self, reader: SourceReader, columns: Sequence[Column]) -> Fields:
        try:
            from datasets import load_dataset
        except ImportError:
            raise MissingExtra("reading hub data sets", "datasets", "data") from None
        source = reader.source
        try:
            rows = load_dataset(source.path.as_posix(), source.config, split=source.split, streaming=True)
            for line, row in enumerate(rows, start=1):
                yield tuple(row[require_column(reader, row, column, line)] for column in columns), line
        except DataError:
            raise
        except Exception as error:  # network, data set scripts, missing splits: each raises its own type
            remedy = "write hub:OWNER/NAME[@CONFIG][#SPLIT], or give a local folder"
            raise reader.error(f"cannot be loaded: {first_line(error)}", remedy=remedy) from None
