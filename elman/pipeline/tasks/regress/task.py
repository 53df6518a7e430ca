"""Text regression: numbers as labels, standardized by the training split; a model for them; its scores and answers."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, FiniteFloat
from torch import Tensor

from elman.batches.examples import Examples
from elman.config import Count
from elman.corpus import LabelledCorpus, LabelledText
from elman.corpus.record_formats import as_text
from elman.errors import DataError
from elman.evaluation.regression import moments, pearson, r2, score_numbers
from elman.inspection.inspected_text import InspectedText, inspect_text_reader
from elman.layers.base import at_least_float32
from elman.models.text_reader import TextReader, TextReaderConfig
from elman.pipeline.tasks import TASKS, EvaluationResult, Measure, PreparedData
from elman.pipeline.tasks.base import ResampledScore
from elman.pipeline.tasks.files import save_json
from elman.pipeline.tasks.settings import Settings
from elman.pipeline.tasks.texts import TextTask
from elman.registry import Registry
from elman.shapes import State
from elman.untrusted import read_as

if TYPE_CHECKING:
    from elman.compiler.cpu.standalone import StepModel
    from elman.pipeline.recipe import Recipe

REGRESSORS: Registry[Any] = Registry("regressor")


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

    mean: FiniteFloat
    std: Annotated[FiniteFloat, Field(gt=0)]
    texts: Count

    @classmethod
    def of(cls, texts: Iterable[LabelledText]) -> "TargetScale":
        source, numbers = None, list[float]()
        for text in texts:
            source = text.source
            numbers.append(_number(text))
        if len(set(numbers)) < 2:
            found = f"only the number {numbers[0]:g}" if numbers else "no number at all"
            raise DataError(f"{found} in {len(numbers)} texts: the targets must differ", file=source)
        with np.errstate(all="ignore"):
            mean, variance = float(np.mean(numbers)), float(np.var(numbers))
        if not 0 < variance < math.inf:
            ends = f"from {min(numbers):g} to {max(numbers):g}"
            raise DataError(
                f"the targets reach {ends}: their variance is no number", file=source, remedy="rescale them"
            )
        return cls(mean, math.sqrt(variance), len(numbers))

    def target(self, text: LabelledText) -> float:
        return (_number(text) - self.mean) / self.std

    def in_unit(self, standardized: Any) -> Any:
        """Numbers in the unit of the data."""
        return np.asarray(standardized, dtype=np.float64) * self.std + self.mean

    def save(self, path: Path) -> None:
        save_json(asdict(self), path)

    @classmethod
    def load(cls, path: Path) -> "TargetScale":
        return read_as(cls, path)


def _number(text: LabelledText) -> float:
    return number_of(text.labels[0], text.source, text.line or None)


class RegressorConfig(TextReaderConfig):
    """A stack that reads the whole text, and a number on top."""

    type: Literal["regressor"] = "regressor"  # type: ignore[assignment]
    """Kind of model: a stack that predicts a number for a text."""


@REGRESSORS.register("regressor")
class Regressor(TextReader):
    """Reads `text`, predicts `label`, a standardized number: (number - mean) / std."""

    Config = RegressorConfig

    def __init__(self, config: RegressorConfig, vocab_size: int, mean: float = 0.0, std: float = 1.0):
        super().__init__(config, vocab_size, outputs=1)
        self.mean, self.std = mean, std

    def batch_loss(self, batch: Examples, state: State | None = None) -> tuple[Tensor, None]:
        """Squared error of the standardized number, summed over texts (over positions with `every_token`)."""
        text, truth = batch.ragged("text"), batch.plain("label")
        logits, truth = self.training_logits(text, truth)
        found = at_least_float32(logits.squeeze(-1))
        return (found - truth.to(found.dtype)).square().sum(), None

    def in_unit(self, logits: Tensor) -> Tensor:
        """In the unit of the data."""
        return at_least_float32(logits) * self.std + self.mean


@TASKS.register("regress")
class Regress(TextTask):
    """Regress: a number for a text, such as a rating or a price."""

    models, default_model = REGRESSORS, "regressor"
    corpus_class, Target, saved_files = NumberCorpus, TargetScale, ("tokenizer.json", "scale.json")
    metrics = ("mse", "mae", "pearson", "spearman", "r2")
    has_probabilities = False
    endpoint = "regress"
    measures = (Measure("mse", True, "mean squared error"),)
    shown_scores = ("mse", "mae", "pearson", "spearman", "r2", "baseline_mse")
    paired_measure = table_measure = "mse"
    graded = "Squared error"

    @classmethod
    def build_smallest(cls, config: Any) -> Regressor:
        return Regressor(config, 2)

    def build(self, config: Any) -> Regressor:
        return Regressor(config, self.tokenizer.vocab_size, self.target.mean, self.target.std)

    def step_model(self, model: Any) -> "StepModel":
        return replace(super().step_model(model), scale=self.target.std, mean=self.target.mean)

    def describe_vocabulary(self) -> Settings:
        return {**super().describe_vocabulary(), "target_mean": self.target.mean, "target_std": self.target.std}

    def run(self, model: Any, batch: Any) -> Any:
        return model.logits(batch.ragged("text"))[:, 0]

    def answer(self, output: Any, probabilities: bool) -> Settings:
        return {"number": float(self.target.in_unit(output))}

    def empty_answer(self, probabilities: bool) -> Settings:
        return {"number": None}

    def format(self, answer: Settings) -> str:
        number = "" if answer["number"] is None else f"{answer['number']:.6g}"
        return f"{number}\t{answer['text']}"

    def grade(self, answer: Settings, right: str) -> tuple[str, float]:
        return f"{answer['number']:.4g}", -((answer["number"] - float(right)) ** 2)

    def evaluate(self, model: Any, prepared: PreparedData, recipe: "Recipe", split: str) -> EvaluationResult:
        found, truth = self.outputs(
            model, prepared, recipe, split, lambda batch: self.run(model, batch), lambda batch: batch.plain("label")
        )
        found, truth = self.target.in_unit(found), self.target.in_unit(truth)
        scores = score_numbers(found, truth, baseline=self.target.mean).plain()
        scores |= {"loss": self.loss(model, prepared.stores[split], recipe)}
        units = moments(found, truth)
        others = {
            "mae": ResampledScore(np.stack([np.abs(found - truth), np.ones(len(truth))], 1), _mean),
            "pearson": ResampledScore(units, pearson),
            "r2": ResampledScore(units, r2),
        }
        return EvaluationResult(scores, "mse", (found - truth) ** 2, np.ones(len(truth)), others=others)

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        ids, tokens = self.tokens(text)
        return inspect_text_reader(model, ids, tokens, lambda _: "the number", goal="value", scores=model.in_unit)


def _mean(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1]
