"""A model of whole texts as a step: reads one token, and predicts from the text so far."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.models.text_reader import TextReader
from elman.shapes import State, Step, Token


class ReaderState(NamedTuple):
    """Of the stack and of pooling: the vector so far or a weighted sum, the sum of weights, the largest score."""

    stack: State
    pooled: Tensor
    weight: Tensor
    largest: Tensor


class ReaderStep(nn.Module):
    """`step` gives the logits of the last position of `running_logits`; a text without tokens has those of `start`."""

    def __init__(self, reader: TextReader):
        super().__init__()
        if not reader.causal:
            two_way = next(block.kind for block in reader.stack.blocks() if not block.layer.causal)
            raise ConfigError(f"the model reads texts from both sides ({two_way}), which has no form of single steps")
        self.reader, self.kind = reader, reader.pooling.kind

    @property
    def start(self) -> Tensor:
        """Logits (1, outputs) of a text without tokens."""
        width = self.reader.stack.output_size
        return self.reader._head(self.reader.output.weight.new_zeros(1, width))

    def initial_state(self, batch: int) -> ReaderState:
        width = self.reader.stack.output_size
        zeros = self.reader.output.weight.new_zeros(batch, width)
        pooled = torch.full_like(zeros, -torch.inf) if self.kind == "max" else zeros
        weight = zeros[:, :1].clone()
        return ReaderState(self.reader.stack.initial_state(batch), pooled, weight, torch.full_like(weight, -torch.inf))

    def step(self, token: Token, state: ReaderState) -> tuple[Step, ReaderState]:
        """Logits (batch, outputs) after one more token, and the new state."""
        reader, (stack, pooled, weight, largest) = self.reader, state
        x, stack = reader.stack.step(reader.embedding(token) * reader.scale, stack)
        if self.kind == "last":
            return reader._head(x), ReaderState(stack, x, weight, largest)
        if self.kind == "max":
            pooled = torch.maximum(pooled, x)
            return reader._head(pooled), ReaderState(stack, pooled, weight, largest)
        if self.kind == "mean":
            pooled, weight = pooled + x, weight + 1
            return reader._head(pooled / weight), ReaderState(stack, pooled, weight, largest)
        score = reader.pooling.to_score(x)
        most = torch.maximum(largest, score)
        before, share = (largest - most).exp(), (score - most).exp()
        pooled, weight = before * pooled + share * x, before * weight + share
        return reader._head(pooled / weight), ReaderState(stack, pooled, weight, most)

    def forward(self, *_: Any) -> Any:
        raise NotImplementedError("whole texts are read by the model itself")
