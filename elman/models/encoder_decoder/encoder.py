"""The encoder: token embeddings and a stack of causal or bidirectional layers."""

import torch
from torch import Tensor, nn

from elman.models.encoder_decoder.config import EncoderConfig
from elman.models.stack import Stack
from elman.ops.dropout import embedded
from elman.ops.taps import tap
from elman.shapes import Lengths, Sequence, Step, Tokens


class Encoder(nn.Module):
    def __init__(self, config: EncoderConfig, vocab_size: int):
        super().__init__()
        self.config = config
        width = config.embedding_size or config.hidden_size
        self.embedding = nn.Embedding(vocab_size, width)
        self.scale = config.embedding_scale or width**0.5
        self.stack = Stack(config, width)
        self.output_size = self.stack.output_size
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    def forward(self, tokens: Tokens, lengths: Lengths) -> Sequence:
        """The top layer's output at each position."""
        x = embedded(tokens, self.embedding.weight, self.config.embedding_dropout, self.training)
        x, _ = self.stack(self.stack.drop_input(tap("embedding", x * self.scale)), None, lengths)
        return self.stack.drop_output(x)


def ends(source: Sequence, lengths: Lengths) -> Step:
    """A summary of each row (batch, 2 · width): its first and last real position, where the backward and forward layers
    have read the whole row; zeros for an empty row."""
    if source.shape[1] == 0:
        return source.new_zeros(len(source), 2 * source.shape[2])
    rows = torch.arange(len(source), device=source.device)
    both: Tensor = torch.cat([source[:, 0], source[rows, lengths.clamp(min=1) - 1]], -1)
    return both.masked_fill((lengths == 0).unsqueeze(1), 0)
