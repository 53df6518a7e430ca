"""Left-to-right language model: token embeddings, a stack of sequence layers, and a softmax over the next token."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Batch
from elman.errors import ConfigError
from elman.models.base import MODELS
from elman.models.stack import Stack, StackConfig
from elman.ops.cross_entropy import cross_entropy_each, cross_entropy_sum
from elman.ops.dropout import embedded
from elman.ops.taps import stepping, tap
from elman.shapes import Lengths, State, Token, Tokens


@MODELS.register("stack")
class LanguageModel(nn.Module):
    """Embedding, stack of layers, output layer; trained by maximum likelihood."""

    Config = StackConfig
    sites: ClassVar = {
        "embedding": "token embeddings of the input, before dropout (x)",
        "position": "position embedding added to each token, with model.positions (p)",
        "output.logits": "logits of the next token, before the softmax",
    }

    def __init__(self, config: StackConfig, vocab_size: int):
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        width = config.embedding_size or config.hidden_size
        self.embedding = nn.Embedding(vocab_size, width)
        self.scale = config.embedding_scale or width**0.5
        self.stack = Stack(config, width)
        if config.tied_embeddings and self.stack.output_size != width:
            raise ConfigError(
                "tied embeddings need a top layer as wide as the embeddings, but the widths are "
                f"{self.stack.output_size} and {width}; set model.tied_embeddings: false, or the last layer's "
                f"hidden_size to {width}"
            )
        self.output = None if config.tied_embeddings else nn.Linear(self.stack.output_size, vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    def initial_state(self, batch: int) -> State:
        """State of the stack before the first token."""
        return self.stack.initial_state(batch)

    def forward(
        self, tokens: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Logits (batch, time, vocabulary) of the token after each position, and the new state."""
        features, state = self.features(tokens, state, lengths)
        return tap("output.logits", self.logits(features)), state

    def step(self, token: Token, state: State) -> tuple[Tensor, State]:
        """Logits (batch, vocabulary) after one more token, and the new state."""
        with stepping():
            features, state = self.stack.step(tap("embedding", self.embedding(token) * self.scale), state)
            return tap("output.logits", self.logits(features)), state

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats of every target, without gradients and without materializing all logits; undefined at padding."""
        features, state = self.features(inputs, state, lengths)
        nats = cross_entropy_each(features.flatten(0, 1), self.output_weight, self.output_bias, targets.flatten())
        return nats.view(targets.shape), state

    def total_loss(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Sum of nats over real positions, which training divides by the number of tokens."""
        features, state = self.features(inputs, state, lengths)
        if lengths is None:
            features, targets = features.flatten(0, 1), targets.flatten()
        else:
            real = torch.arange(targets.shape[1], device=targets.device) < lengths.to(targets.device)[:, None]
            features, targets = features[real], targets[real]
        return cross_entropy_sum(features, self.output_weight, self.output_bias, targets), state

    def batch_loss(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State]:
        """The same of a batch: what every trainable model offers."""
        return self.total_loss(batch.inputs, batch.targets, state, batch.lengths)

    def features(self, tokens: Tokens, state: State | None, lengths: Lengths | None) -> tuple[Tensor, State]:
        """The top layer's output, the input of the output projection."""
        x, state = self.stack(self._embedded(tokens), state, lengths)
        return self.stack.drop_output(x), state

    def explain(self, batch: int, time: int, ragged: bool = False) -> list[str]:
        """For each layer, which implementation runs such a batch, and why."""
        layers: list[Any] = [block.layer for block in self.stack.blocks()]
        return [layer.explain(batch, time, ragged) for layer in layers if hasattr(layer, "explain")]

    def logits(self, features: Tensor) -> Tensor:
        """Logits over the vocabulary from the features of the top layer."""
        return F.linear(features, self.output_weight, self.output_bias)

    @property
    def output_weight(self) -> Tensor:
        """Weight of the output projection: the embedding matrix if tied."""
        return self.embedding.weight if self.output is None else self.output.weight

    def _embedded(self, tokens: Tokens) -> Tensor:
        x = embedded(tokens, self.embedding.weight, self.config.embedding_dropout, self.training)
        return self.stack.drop_input(tap("embedding", x * self.scale))
