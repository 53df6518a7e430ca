"""Ensemble of encoder-decoders: averages their next-token probabilities."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elman.batches import Examples, Ragged
from elman.errors import ConfigError
from elman.layers.base import at_least_float32
from elman.shapes import State, Token


class Ensemble(nn.Module):
    """Has the interface of its models, which share one vocabulary."""

    def __init__(self, models: Sequence[Any]):
        super().__init__()
        if not models:
            raise ConfigError("an ensemble needs at least one model")
        kinds = {(model.vocab_size, model.eos_id) for model in models}
        if len(kinds) > 1:
            sizes = " and ".join(f"{size} tokens with end-of-sequence {end}" for size, end in sorted(kinds))
            raise ConfigError(
                f"an ensemble needs models of one vocabulary, but got {sizes}; train them on the same data"
            )
        self.models: Any = nn.ModuleList(models)
        ((self.vocab_size, self.eos_id),) = kinds

    def start(self, source: Ragged) -> State:
        return tuple(model.start(source) for model in self.models)

    def step(self, token: Token, state: State) -> tuple[Tensor, State]:
        """Log-probabilities (batch, vocabulary) of the next token, and the new state."""
        found = [model.step(token, part) for model, part in zip(self.models, state, strict=True)]
        log_probs = [at_least_float32(logits).log_softmax(-1) for logits, _ in found]
        return _mean(log_probs), tuple(part for _, part in found)

    def losses(self, source: Ragged, target: Ragged) -> Tensor:
        """Nats of every target token (batch, time) under teacher forcing; zero at padding."""
        return -_mean([-model.losses(source, target) for model in self.models])

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Sum of nats over all target tokens; for evaluation only, as each model is trained on its own."""
        return self.losses(batch.ragged("source"), batch.ragged("target")).sum(), None


def _mean(log_probs: list[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities."""
    return torch.stack(log_probs).logsumexp(0) - math.log(len(log_probs))
