"""Texts with numbers: labelled data whose label is a finite number, standardized by the training split."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from elman.corpus import LabelledCorpus, LabelledText
from elman.corpus.record_formats import as_text
from elman.errors import DataError
from elman.pipeline.tasks.files import read_json, save_json


class NumberCorpus(LabelledCorpus):
    """Labels are numbers: in tables as text, in JSON and parquet also as numbers."""

    names: ClassVar[Any] = None  # a held-out part may have numbers unseen in training

    def _labels(self, reading: Any, value: Any, line: int, column: Any) -> tuple[str, ...]:
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            text = repr(float(value))
        else:
            text = as_text(reading, value, line, column).strip()
        number_of(text, reading.source.name, line, column)
        return (text,)


def number_of(text: str, file: str, line: int | None, column: Any = None) -> float:
    """The finite number that a text is."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        what = f"{text!r} is not a finite number" if text else "a number is missing"
        remedy = "write it with a decimal point, or name the columns of number and text: --columns price,text"
        raise DataError(what, file=file, line=line, column=column, remedy=remedy)
    return number


@dataclass(frozen=True)
class TargetScale:
    """Mean and standard deviation of the training targets: models are trained on (target - mean) / std."""

    mean: float
    std: float
    texts: int

    @classmethod
    def of(cls, texts: Iterable[LabelledText]) -> "TargetScale":
        source, numbers = None, list[float]()
        for text in texts:
            source = text.source
            numbers.append(_number(text))
        if len(set(numbers)) < 2:
            found = f"only the number {numbers[0]:g}" if numbers else "no number at all"
            raise DataError(f"{found} in {len(numbers)} texts: the targets must differ", file=source)
        return cls(float(np.mean(numbers)), float(np.std(numbers)), len(numbers))

    def target(self, text: LabelledText) -> float:
        return (_number(text) - self.mean) / self.std

    def in_unit(self, standardized: Any) -> Any:
        """Numbers in the unit of the data."""
        return np.asarray(standardized, dtype=np.float64) * self.std + self.mean

    def save(self, path: Path) -> None:
        save_json(asdict(self), path)

    @classmethod
    def load(cls, path: Path) -> "TargetScale":
        return cls(**read_json(path))


def _number(text: LabelledText) -> float:
    return number_of(text.labels[0], text.source, text.line or None)
