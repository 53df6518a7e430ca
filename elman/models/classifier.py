"""Classifier: word vectors, any stack of layers, one vector for the text, and a score for each label."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches.examples import Examples, Ragged
from elman.errors import ConfigError
from elman.models.base import CLASSIFIERS
from elman.models.pooling import Kind, Pooling
from elman.models.stack import Entry, Stack, StackConfig
from elman.ops.dropout import embedded
from elman.ops.taps import stepping, tap
from elman.shapes import State


class ClassifierConfig(StackConfig):
    """A stack that reads the whole text, and how it comes to a verdict."""

    both_sides: ClassVar[bool] = True

    type: Literal["classifier"] = "classifier"  # type: ignore[assignment]
    """Kind of model: a stack that tells which labels a text has."""
    pattern: list[Entry] = Field(default_factory=lambda: list[Entry]([{"lstm": {}}]))
    """Layers from bottom to top, as in a stack; those that see both sides may be among them. Without any, [], the
    word vectors themselves are pooled: a text is then a bag of words."""
    tied_embeddings: bool = False
    """Of no effect: labels are no words."""
    pooling: Kind = "last"
    """How the outputs of all positions become one vector: the last one, their mean, the largest value of each unit, or
    a mean whose weights are learned (Yang et al., 2016)."""
    head_size: int = Field(0, ge=0)
    """Units of a hidden layer with ReLU between that vector and the labels; 0 for none."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the truth that training spreads evenly over all labels (Szegedy et al., 2016)."""
    class_weights: Literal["none", "balanced"] | dict[str, float] = "none"
    """What training multiplies the loss of each label by: by name, others 1; or balanced, as if all were equally
    frequent. Of several labels, the loss of those a text has."""
    every_token: bool = False
    """Train the label at every position, on what was read so far: a running verdict. Needs causal layers."""

    @field_validator("pattern", mode="before")
    @classmethod
    def _entries(cls, pattern: Any) -> list[Entry]:
        return [] if pattern == [] else super()._entries(pattern)

    @model_validator(mode="after")
    def _enough(self) -> "ClassifierConfig":
        if self.num_layers and not self.pattern:
            raise ValueError(f"num_layers is {self.num_layers}, but the pattern names no layer to repeat")
        return self


@CLASSIFIERS.register("classifier")
class Classifier(nn.Module):
    """Reads `text`, answers with `label`: a number, or a one for each of `several` that the text has."""

    Config = ClassifierConfig
    sites: ClassVar = {
        "embedding": "word vectors of the text, before dropout (x)",
        "position": "what is added to a word vector for its place, with model.positions (p)",
        "pooling.weights": "weight of each position in the vector of the text; with pooling max there is none",
        "pooling.vector": "the vector of the text; of the text so far, where verdicts are running",
        "output.logits": "scores of all labels, before softmax or sigmoid",
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
                f"model.every_token: a verdict on what was read so far needs layers that do not see what comes, but "
                f"{two_way[0]} does; take causal ones, like lstm, or leave every_token out"
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
        """What a batch's loss is a mean over: examples, or positions of their texts."""
        return "text" if self.config.every_token else ""

    def batch_loss(self, batch: Examples, state: State | None = None) -> tuple[Tensor, None]:
        """Nats summed over examples, or over positions with `every_token`; of several labels, over these too.

        Smoothing and weights are for training: in evaluation these are the nats of the truth.
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

    def logits(self, text: Ragged) -> Tensor:
        """Scores of all labels for each whole text (batch, labels)."""
        pooled = self.pooling(self._features(text), text.mask())
        logits = self._head(pooled.unsqueeze(1)).squeeze(1)
        with stepping():
            return tap("output.logits", logits)

    def running_logits(self, text: Ragged) -> Tensor:
        """Scores of all labels after each token (batch, time, labels); for layers that read one way."""
        return tap("output.logits", self._head(self.pooling.running(self._features(text), text.mask())))

    def _features(self, text: Ragged) -> Tensor:
        config = self.config
        x = embedded(text.values, self.embedding.weight, config.embedding_dropout, self.training)
        x = tap("embedding", x * self.scale)
        x = self.stack.drop(x, config.dropout if config.input_dropout is None else config.input_dropout)
        return self.stack(x, None, text.lengths)[0]

    def _head(self, pooled: Tensor) -> Tensor:
        config = self.config
        share = config.dropout if config.output_dropout is None else config.output_dropout
        x = self.stack.drop(pooled.to(self.output.weight.dtype), share)
        if self.hidden is not None:
            x = self.stack.drop(self.hidden(x).relu(), share)
        return self.output(x)

    def _truth(self, batch: Examples) -> Tensor:
        if self.several:
            return batch.ragged("label").values.to(self.output.weight.dtype)
        return batch.plain("label").long()

    def _nats(self, logits: Tensor, truth: Tensor) -> Tensor:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        weights = self.class_weights.to(logits.dtype) if self.training else None
        smoothing = self.config.label_smoothing if self.training else 0.0
        if self.several:
            soft = truth.to(logits.dtype) * (1 - smoothing) + smoothing / 2
            return F.binary_cross_entropy_with_logits(logits, soft, pos_weight=weights, reduction="sum")
        return F.cross_entropy(logits, truth, weights, label_smoothing=smoothing, reduction="sum")

    def _probabilities(self, logits: Tensor) -> Tensor:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits.sigmoid() if self.several else logits.softmax(-1)
