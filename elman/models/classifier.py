"""Text classifier: word embeddings, any stack of layers, pooling over time, and a linear output over labels."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches.examples import Examples, Ragged
from elman.errors import ConfigError
from elman.layers.base import at_least_float32
from elman.models.base import TASK_MODELS
from elman.models.pooling import Pooling, PoolingType
from elman.models.stack import LayerSpec, Stack, StackConfig
from elman.ops.dropout import embedded
from elman.ops.taps import stepping, tap
from elman.shapes import State


class ClassifierConfig(StackConfig):
    """Settings of the classifier: a stack over the whole text, pooling and output."""

    both_sides: ClassVar[bool] = True

    type: Literal["classifier"] = "classifier"  # type: ignore[assignment]
    """Model type: a stack that classifies texts."""
    pattern: list[LayerSpec] = Field(default_factory=lambda: list[LayerSpec]([{"lstm": {}}]))
    """Layers from bottom to top, as in a stack; bidirectional layers are allowed. [] pools the word embeddings
    themselves (bag of words)."""
    tied_embeddings: bool = False
    """No effect: labels have no embeddings to tie."""
    pooling: PoolingType = "last"
    """Pooling over positions: the last output, the mean, the maximum of each unit, or attention pooling (Yang et al.,
    2016)."""
    head_size: int = Field(0, ge=0)
    """Units of a hidden layer with ReLU between pooling and labels; 0: none."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing: share of the target distribution that is spread evenly over all labels (Szegedy et al.,
    2016)."""
    class_weights: Literal["none", "balanced"] | dict[str, float] = "none"
    """Weight of each label in the training loss, by name (others 1); balanced: inverse to the label's frequency. In
    multi-label tasks it weights the positive labels."""
    every_token: bool = False
    """Train to predict the label at every position from the prefix (running prediction). Needs causal layers."""

    @field_validator("pattern", mode="before")
    @classmethod
    def _entries(cls, pattern: Any) -> list[LayerSpec]:
        return [] if pattern == [] else super()._entries(pattern)

    @model_validator(mode="after")
    def _num_layers_needs_a_pattern(self) -> "ClassifierConfig":
        if self.num_layers and not self.pattern:
            raise ValueError(f"num_layers is {self.num_layers}, but the pattern is empty")
        return self


@TASK_MODELS["classify"].register("classifier")
class Classifier(nn.Module):
    """Classifies `text` as `label`: an index, or with `several` a 0/1 vector of labels."""

    Config = ClassifierConfig
    sites: ClassVar = {
        "embedding": "word embeddings of the text, before dropout (x)",
        "position": "position embedding added to each word, with model.positions (p)",
        "pooling.weights": "pooling weight of each position; none with pooling max",
        "pooling.vector": "pooled vector of the text, or of each prefix",
        "output.logits": "logits of all labels, before softmax or sigmoid",
    }
    class_weights: Tensor

    def __init__(
        self,
        config: ClassifierConfig,
        vocab_size: int,
        labels: int,
        several: bool = False,
        class_weights: list[float] | None = None,
    ):
        super().__init__()
        self.config, self.vocab_size, self.labels, self.several = config, vocab_size, labels, several
        width = config.embedding_size or config.hidden_size
        self.embedding = nn.Embedding(vocab_size, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.scale = config.embedding_scale or width**0.5
        self.stack = Stack(config, width)
        two_way = [block.kind for block in self.stack.blocks() if not block.layer.causal]
        self.causal = not two_way
        if config.every_token and two_way:
            raise ConfigError(
                f"model.every_token: predictions for prefixes need causal layers, but {two_way[0]} is bidirectional; "
                "use causal layers, such as lstm, or remove every_token"
            )
        width = self.stack.output_size
        self.pooling = Pooling(config.pooling, width)
        self.hidden = nn.Linear(width, config.head_size) if config.head_size else None
        self.output = nn.Linear(config.head_size or width, labels)
        weights = torch.ones(labels) if class_weights is None else torch.tensor(class_weights)
        assert len(weights) == labels, "one weight for each label"
        self.register_buffer("class_weights", weights.to(self.output.weight.dtype))

    @property
    def unit(self) -> str:
        """What the loss of a batch is averaged over: examples, or the positions of field `text`."""
        return "text" if self.config.every_token else ""

    def batch_loss(self, batch: Examples, state: State | None = None) -> tuple[Tensor, None]:
        """Sum of nats over examples, or with `every_token` over positions; multi-label: also over labels.

        Label smoothing and class weights apply in training only.
        """
        text, truth = batch.ragged("text"), self._truth(batch)
        if self.config.every_token:
            real = text.mask()
            logits = self.running_logits(text)[real]
            truth = truth.repeat_interleave(text.lengths, dim=0)
        else:
            logits = self.logits(text)
        return self._nats(logits, truth), None

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

    def logits(self, text: Ragged) -> Tensor:
        """Logits of all labels for each text (batch, labels)."""
        pooled = self.pooling(self._features(text), text.mask())
        logits = self._head(pooled.unsqueeze(1)).squeeze(1)
        with stepping():
            return tap("output.logits", logits)

    def running_logits(self, text: Ragged) -> Tensor:
        """Logits of all labels after each token (batch, time, labels); needs causal layers."""
        return tap("output.logits", self._head(self.pooling.running(self._features(text), text.mask())))

    def _features(self, text: Ragged) -> Tensor:
        config = self.config
        x = embedded(text.values, self.embedding.weight, config.embedding_dropout, self.training)
        x = tap("embedding", x * self.scale)
        return self.stack(self.stack.drop_input(x), None, text.lengths)[0]

    def _head(self, pooled: Tensor) -> Tensor:
        x = self.stack.drop_output(pooled.to(self.output.weight.dtype))
        if self.hidden is not None:
            x = self.stack.drop_output(self.hidden(x).relu())
        return self.output(x)

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
