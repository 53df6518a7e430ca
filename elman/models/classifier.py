"""Classifier: a score for each label, from one vector of the text."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from elman.batches.examples import Examples, Ragged
from elman.models.base import CLASSIFIERS
from elman.models.text_reader import TextReader, TextReaderConfig, at_least_float32
from elman.shapes import State


class ClassifierConfig(TextReaderConfig):
    """A stack that reads the whole text, and how it comes to a verdict."""

    type: Literal["classifier"] = "classifier"  # type: ignore[assignment]
    """Kind of model: a stack that tells which labels a text has."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the truth that training spreads evenly over all labels (Szegedy et al., 2016)."""
    class_weights: Literal["none", "balanced"] | dict[str, float] = "none"
    """What training multiplies the loss of each label by: by name, others 1; or balanced, as if all were equally
    frequent. Of several labels, the loss of those a text has."""


@CLASSIFIERS.register("classifier")
class Classifier(TextReader):
    """Reads `text`, answers with `label`: a number, or a one for each of `several` that the text has."""

    Config = ClassifierConfig
    config: ClassifierConfig
    class_weights: Tensor

    def __init__(
        self,
        config: ClassifierConfig,
        vocab_size: int,
        labels: int,
        several: bool = False,
        class_weights: list[float] | None = None,
    ):
        super().__init__(config, vocab_size, labels)
        self.labels, self.several = labels, several
        weights = torch.ones(labels) if class_weights is None else torch.tensor(class_weights)
        assert len(weights) == labels, "one weight for each label"
        self.register_buffer("class_weights", weights.to(self.output.weight.dtype))

    def batch_loss(self, batch: Examples, state: State | None = None) -> tuple[Tensor, None]:
        """Nats summed over examples, or over positions with `every_token`; of several labels, over these too.

        Smoothing and weights are for training: in evaluation these are the nats of the truth.
        """
        return self._nats(*self.trained_logits(batch.ragged("text"), self._truth(batch))), None

    @torch.no_grad()
    def probabilities(self, batch: Examples) -> Tensor:
        """Of each label (batch, labels): shares of one, or each for itself where a text can have several."""
        return self._probabilities(self.logits(batch.ragged("text")))

    @torch.no_grad()
    def verdicts(self, batch: Examples) -> Tensor:
        """The same after each token (batch, time, labels); padding gives rubbish.

        Where layers see both sides, each beginning of the text is read anew.
        """
        text = batch.ragged("text")
        if self.causal:
            return self._probabilities(self.running_logits(text))
        verdicts = [
            self._probabilities(self.logits(Ragged(text.values[:, :size], text.lengths.clamp(max=size))))
            for size in range(1, text.values.shape[1] + 1)
        ]
        return torch.stack(verdicts, 1) if verdicts else self.output.weight.new_zeros(batch.size, 0, self.labels)

    def _truth(self, batch: Examples) -> Tensor:
        if self.several:
            return batch.ragged("label").values.to(self.output.weight.dtype)
        return batch.plain("label").long()

    def _nats(self, logits: Tensor, truth: Tensor) -> Tensor:
        logits = at_least_float32(logits)
        weights = self.class_weights.to(logits.dtype) if self.training else None
        smoothing = self.config.label_smoothing if self.training else 0.0
        if self.several:
            soft = truth.to(logits.dtype) * (1 - smoothing) + smoothing / 2
            return F.binary_cross_entropy_with_logits(logits, soft, pos_weight=weights, reduction="sum")
        return F.cross_entropy(logits, truth, weights, label_smoothing=smoothing, reduction="sum")

    def _probabilities(self, logits: Tensor) -> Tensor:
        logits = at_least_float32(logits)
        return logits.sigmoid() if self.several else logits.softmax(-1)
