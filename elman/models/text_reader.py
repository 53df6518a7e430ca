"""Models of whole texts: word embeddings, any stack of layers, pooling over time, and a linear output over labels.

Every pooling but max is a weighted mean: the weight of a position is its score divided by the sum of scores. So the
running form over prefixes uses the same scores with cumulative sums.
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches.examples import Examples, Ragged
from elman.errors import ConfigError
from elman.layers.base import at_least_float32
from elman.models.base import CLASSIFIERS
from elman.models.stack import LayerSpec, Stack, StackConfig
from elman.ops.dropout import embedded
from elman.ops.lookup import Lookup, distinct, worth_a_table
from elman.ops.taps import listening, stepping, tap
from elman.shapes import Sequence, State

PoolingType = Literal["last", "mean", "max", "attention"]


class Pooling(nn.Module):
    """`forward` gives (batch, width), `running` (batch, time, width); a text without tokens gives zeros."""

    def __init__(self, kind: PoolingType, width: int):
        super().__init__()
        self.kind = kind
        score = (nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1, bias=False)) if kind == "attention" else ()
        self.to_score = nn.Sequential(*score)

    def forward(self, x: Sequence, real: Tensor) -> Tensor:
        if self.kind == "last" and x.shape[1] and not listening():  # the only weight that is not 0 is 1
            last = real.sum(1, keepdim=True) - 1
            pooled = x[torch.arange(len(x), device=x.device), last.clamp(min=0).squeeze(1)]
            return at_least_float32(pooled).masked_fill(last < 0, 0.0)
        x = _masked(x, real)
        if self.kind == "max":
            pooled = x.masked_fill(~real.unsqueeze(-1), -torch.inf).amax(1) if x.shape[1] else x.sum(1)
            pooled = pooled.masked_fill(~real.any(1, keepdim=True), 0.0)
        else:
            shares = self._shares(x, real)
            weights = tap("pooling.weights", shares / shares.sum(1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny))
            pooled = (weights.unsqueeze(1) @ x).squeeze(1)
        with stepping():  # the whole text is one step
            return tap("pooling.vector", pooled)

    def running(self, x: Sequence, real: Tensor) -> Sequence:
        """The pooled vector of each prefix; finite but undefined at padding."""
        x = _masked(x, real)
        if self.kind == "last":
            pooled = x
        elif self.kind == "max":
            pooled = x.cummax(1).values
        else:
            shares = self._shares(x, real).unsqueeze(-1)
            pooled = (shares * x).cumsum(1) / shares.cumsum(1).clamp(min=torch.finfo(x.dtype).tiny)
        return tap("pooling.vector", pooled)

    def _shares(self, x: Sequence, real: Tensor) -> Tensor:
        """Unnormalized weights (batch, time)."""
        if self.kind == "last":
            places = torch.arange(real.shape[1], device=real.device)
            return ((places == real.sum(1, keepdim=True) - 1) & real).to(x.dtype)
        if self.kind == "mean":
            return real.to(x.dtype)
        scores = self.to_score(x).squeeze(-1).to(x.dtype).masked_fill(~real, -torch.inf)
        largest = scores.amax(1, keepdim=True) if scores.shape[1] else scores.new_zeros(len(x), 1)
        return (scores - largest.detach().clamp(min=torch.finfo(x.dtype).min)).exp()


def _masked(x: Sequence, real: Tensor) -> Sequence:
    """Real positions in at least float32, zeros at padding, whose contents are undefined."""
    return at_least_float32(x).masked_fill(~real.unsqueeze(-1), 0.0)


class TextReaderConfig(StackConfig):
    """Settings of a model with one output for the whole text: a stack, pooling and output."""

    both_sides: ClassVar[bool] = True

    pattern: list[LayerSpec] = Field([{"lstm": {}}])
    """Layers from bottom to top, as in a stack; bidirectional layers are allowed. [] pools the word embeddings
    themselves (bag of words)."""
    tied_embeddings: bool = False
    """No effect: the outputs have no embeddings to tie."""
    pooling: PoolingType = "last"
    """Pooling over positions: the last output, the mean, the maximum of each unit, or attention pooling (Yang et al.,
    2016)."""
    head_size: int = Field(0, ge=0)
    """Units of a hidden layer with ReLU between pooling and the output; 0: none."""
    every_token: bool = False
    """Train to predict at every position from the prefix (running prediction). Needs causal layers."""

    @field_validator("pattern", mode="before")
    @classmethod
    def _entries(cls, pattern: Any) -> list[LayerSpec]:
        return [] if pattern == [] else super()._entries(pattern)

    @model_validator(mode="after")
    def _num_layers_needs_a_pattern(self) -> "TextReaderConfig":
        if self.num_layers and not self.pattern:
            raise ValueError(f"num_layers is {self.num_layers}, but the pattern is empty")
        return self


class TextReader(nn.Module):
    """Reads the field `text` of a batch into one vector and computes `outputs` numbers from it."""

    sites: ClassVar = {
        "embedding": "word embeddings of the text, before dropout (x)",
        "position": "position embedding added to each word, with model.positions (p)",
        "pooling.weights": "pooling weight of each position; none with pooling max",
        "pooling.vector": "pooled vector of the text, or of each prefix",
        "output.logits": "logits of all labels, before softmax or sigmoid; a regressor's standardized number",
    }

    def __init__(self, config: TextReaderConfig, vocab_size: int, outputs: int):
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
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
        self.output = nn.Linear(config.head_size or width, outputs)

    @property
    def unit(self) -> str:
        """What the loss of a batch is averaged over: examples, or the positions of field `text`."""
        return "text" if self.config.every_token else ""

    def logits(self, text: Ragged) -> Tensor:
        """Logits for each text (batch, outputs)."""
        pooled = self.pooling(self._features(text), text.mask())
        logits = self._head(pooled.unsqueeze(1)).squeeze(1)
        with stepping():
            return tap("output.logits", logits)

    def running_logits(self, text: Ragged) -> Tensor:
        """Logits after each token (batch, time, outputs); needs causal layers."""
        return tap("output.logits", self._head(self.pooling.running(self._features(text), text.mask())))

    def _features(self, text: Ragged) -> Tensor:
        if not self.training and self.stack.reads_tables and worth_a_table(text.values):
            found, rows = distinct(text.values, self.vocab_size)
            return self.stack(Lookup(self.embedding(found) * self.scale, rows), None, text.lengths)[0]
        x = embedded(text.values, self.embedding.weight, self.config.embedding_dropout, self.training)
        x = tap("embedding", x * self.scale)
        return self.stack(self.stack.drop_input(x), None, text.lengths)[0]

    def _head(self, pooled: Tensor) -> Tensor:
        x = self.stack.drop_output(pooled.to(self.output.weight.dtype))
        if self.hidden is not None:
            x = self.stack.drop_output(self.hidden(x).relu())
        return self.output(x)

    def training_logits(self, text: Ragged, truth: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and targets of the training loss: of texts, or with `every_token` of all their positions."""
        if not self.config.every_token:
            return self.logits(text), truth
        return self.running_logits(text)[text.mask()], truth.repeat_interleave(text.lengths, dim=0)


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
    def divide_logits(self, temperature: float) -> None:
        """Changes the output layer, so that everything that reads the weights is calibrated."""
        for part in self.output.parameters():
            part.div_(temperature)

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
