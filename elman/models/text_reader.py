"""Text reader: word vectors, any stack of layers, one vector for the text, and a linear head on it."""

from typing import Any, ClassVar

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from elman.batches.examples import Ragged
from elman.errors import ConfigError
from elman.models.pooling import Kind, Pooling
from elman.models.stack import Entry, Stack, StackConfig
from elman.ops.dropout import embedded
from elman.ops.taps import stepping, tap


class TextReaderConfig(StackConfig):
    """A stack that reads the whole text, and how its outputs become one vector."""

    both_sides: ClassVar[bool] = True

    pattern: list[Entry] = Field(default_factory=lambda: list[Entry]([{"lstm": {}}]))
    """Layers from bottom to top, as in a stack; those that see both sides may be among them. Without any, [], the
    word vectors themselves are pooled: a text is then a bag of words."""
    tied_embeddings: bool = False
    """Of no effect: the outputs are no words."""
    pooling: Kind = "last"
    """How the outputs of all positions become one vector: the last one, their mean, the largest value of each unit, or
    a mean whose weights are learned (Yang et al., 2016)."""
    head_size: int = Field(0, ge=0)
    """Units of a hidden layer with ReLU between that vector and the outputs; 0 for none."""
    every_token: bool = False
    """Train the output at every position, on what was read so far: a running verdict. Needs causal layers."""

    @field_validator("pattern", mode="before")
    @classmethod
    def _entries(cls, pattern: Any) -> list[Entry]:
        return [] if pattern == [] else super()._entries(pattern)

    @model_validator(mode="after")
    def _enough(self) -> "TextReaderConfig":
        if self.num_layers and not self.pattern:
            raise ValueError(f"num_layers is {self.num_layers}, but the pattern names no layer to repeat")
        return self


class TextReader(nn.Module):
    """Reads the field `text` of a batch into one vector, and gives it `outputs` scores."""

    sites: ClassVar = {
        "embedding": "word vectors of the text, before dropout (x)",
        "position": "what is added to a word vector for its place, with model.positions (p)",
        "pooling.weights": "weight of each position in the vector of the text; with pooling max there is none",
        "pooling.vector": "the vector of the text; of the text so far, where verdicts are running",
        "output.logits": "scores of all outputs: of labels, before softmax or sigmoid",
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
                f"model.every_token: a verdict on what was read so far needs layers that do not see what comes, but "
                f"{two_way[0]} does; take causal ones, like lstm, or leave every_token out"
            )
        width = self.stack.output_size
        self.pooling = Pooling(config.pooling, width)
        self.hidden = nn.Linear(width, config.head_size) if config.head_size else None
        self.output = nn.Linear(config.head_size or width, outputs)

    @property
    def unit(self) -> str:
        """What a batch's loss is a mean over: examples, or positions of their texts."""
        return "text" if self.config.every_token else ""

    def logits(self, text: Ragged) -> Tensor:
        """Scores of all outputs for each whole text (batch, outputs)."""
        pooled = self.pooling(self._features(text), text.mask())
        logits = self._head(pooled.unsqueeze(1)).squeeze(1)
        with stepping():
            return tap("output.logits", logits)

    def running_logits(self, text: Ragged) -> Tensor:
        """Scores of all outputs after each token (batch, time, outputs); for causal layers."""
        return tap("output.logits", self._head(self.pooling.running(self._features(text), text.mask())))

    def trained_logits(self, text: Ragged, truth: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and targets that the loss compares: of texts, or with `every_token` of all their positions."""
        if not self.config.every_token:
            return self.logits(text), truth
        return self.running_logits(text)[text.mask()], truth.repeat_interleave(text.lengths, dim=0)

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


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
