"""The settings of a corpus: where its text is, and what one document of it is."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from elman.config import Config

Places = str | list[str] | None
Format = Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "hub"]


class DataConfig(Config):
    """Text, records or a synthetic language, and how they are read."""

    train: Places = None
    """What to learn from: a file, a folder, a pattern such as data/*.txt, - for standard input,
    hub:OWNER/NAME[@CONFIG][#SPLIT] for a hub data set, or a list of these."""

    valid: Places = None
    """What to choose by while training, given like train; if absent, a part of train is held out."""

    test: Places = None
    """What to report on at the end, given like train; if absent, see test_fraction."""

    language: dict[str, Any] | None = None
    """A synthetic language instead of files, with its settings: {type: agreement, ...}."""

    format: Format = "auto"
    """auto goes by the end of each file's name, .gz looked through; an unknown end means text."""

    column: str | int = "text"
    """The field of a record that holds the text; for csv and tsv without a header, its number, counted from 1."""

    document: Literal["auto", "line", "block", "file", "record"] = "auto"
    """What one document of a text file is: a line, a block between blank lines, or the file.
    auto: line for word tokenizers, else file; records and synthetic sentences are documents already."""

    boundary: Literal["auto", "carry", "reset"] = "auto"
    """Whether a model carries its state over to the next document. auto: carry for text files, else reset."""

    valid_fraction: float = Field(0.1, ge=0, lt=1)
    """The part of train held out for validation, by a hash of the text, when valid is not given."""

    test_fraction: float = Field(0.0, ge=0, lt=1)
    """The part of train held out for testing, by a hash of the text, when test is not given."""

    max_record_bytes: int = Field(16 * 2**20, ge=16)
    """The longest line, block or record that is believed; beyond it the file is taken to be damaged."""

    invalid: Literal["repair", "error"] = "repair"
    """Bytes that are not UTF-8, and NUL: repair replaces or removes and counts them, error stops."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.valid_fraction + self.test_fraction > 0.9:
            raise ValueError("valid_fraction and test_fraction together may hold out at most 0.9")
        if isinstance(self.column, int) and self.column < 1:
            raise ValueError("columns are counted from 1")
        if self.language is not None and (self.train, self.valid, self.test) != (None, None, None):
            raise ValueError("give either files (train, valid, test) or a language, not both")
        return self
