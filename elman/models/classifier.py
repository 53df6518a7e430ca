"""Text classifier: a linear output over labels on one vector of the text."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from elman.batches.examples import Examples, Ragged
from elman.layers.base import at_least_float32
from elman.models.base import CLASSIFIERS
from elman.models.text_reader import TextReader, TextReaderConfig
from elman.shapes import State


class ClassifierConfig(TextReaderConfig):
    """Settings of the classifier: a stack over the whole text, pooling and output."""

    type: Literal["classifier"] = "classifier"  # type: ignore[assignment]
    """Model type: a stack that classifies texts."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing: share of the target distribution that is spread evenly over all labels (Szegedy et al.,
    2016)."""
    class_weights: Literal["none", "balanced"] | dict[str, float] = "none"
    """Weight of each label in the training loss, by name (others 1); balanced: inverse to the label's frequency. In
    multi-label tasks it weights the positive labels."""


@CLASSIFIERS.register("classifier")
class Classifier(TextReader):
    """Classifies `text` as `label`: an index, or with `several` a 0/1 vector of labels."""

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
        """Sum of nats over examples, or with `every_token` over positions; multi-label: also over labels.

        Label smoothing and class weights apply in training only.
        """
        truth = batch.ragged("label").values if self.several else batch.plain("label").long()
        return self._nats(*self.training_logits(batch.ragged("text"), truth)), None

    @torch.no_grad()
    def probabilities(self, batch: Examples) -> Tensor:
        """Probability of each label (batch, labels): softmax, or with `several` sigmoid."""
        return self._probabilities(self.logits(batch.ragged("text")))

    @torch.no_grad()
    def verdicts(self, batch: Examples) -> Tensor:
        """Label probabilities after each token (batch, time, labels); undefined at padding.

        With bidirectional layers, each prefix is processed separately.
        """
        text = batch.ragged("text")
        if self.causal:
            return self._probabilities(self.running_logits(text))
        verdicts = [
            self._probabilities(self.logits(Ragged(text.values[:, :size], text.lengths.clamp(max=size))))
            for size in range(1, text.values.shape[1] + 1)
        ]
        return torch.stack(verdicts, 1) if verdicts else self.output.weight.new_zeros(batch.size, 0, self.labels)

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
