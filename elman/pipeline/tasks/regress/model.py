"""Regressor: one number, from one vector of the text."""

from typing import Any, Literal

from torch import Tensor

from elman.batches.examples import Examples
from elman.layers.base import at_least_float32
from elman.models.text_reader import TextReader, TextReaderConfig
from elman.registry import Registry
from elman.shapes import State

REGRESSORS: Registry[Any] = Registry("regressor")


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
