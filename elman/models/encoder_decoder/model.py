"""Encoder-decoder (Sutskever et al., 2014; Cho et al., 2014)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples, Ragged
from elman.errors import ConfigError
from elman.layers.base import at_least_float32
from elman.models.base import TRANSLATORS
from elman.models.encoder_decoder.config import EncoderConfig, EncoderDecoderConfig
from elman.models.encoder_decoder.decoder import Decoder, DecoderState
from elman.models.stack import Stack
from elman.ops.dropout import embedded
from elman.ops.taps import scope, tap
from elman.shapes import Lengths, Sequence, Token, Tokens


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


@TRANSLATORS.register("encoder-decoder")
class EncoderDecoder(nn.Module):
    """Sequence-to-sequence model.

    Batches have the fields `source` and `target`; a target ends in `eos_id`, which is also the decoder's first input.
    """

    Config = EncoderDecoderConfig

    def __init__(self, config: EncoderDecoderConfig, source_vocab: int, target_vocab: int, eos_id: int):
        super().__init__()
        self.config, self.vocab_size, self.eos_id = config, target_vocab, eos_id
        self.encoder = Encoder(config.encoder, source_vocab)
        self.decoder = Decoder(config.decoder, target_vocab, self.encoder.output_size)
        if config.shared_embeddings:
            share_embeddings(self.encoder, self.decoder, source_vocab, target_vocab)

    def start(self, source: Ragged) -> DecoderState:
        """Encodes the source: the decoder's state before the first token."""
        tokens, lengths = source.values, source.lengths.to(source.values.device)
        with scope("encoder"):
            encoded = self.encoder(tokens, lengths)
        with scope("decoder"):
            return self.decoder.begin(encoded, lengths)

    def step(self, token: Token, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits (batch, vocabulary) of the next token, and the new state; the first input is `eos_id`."""
        with scope("decoder"):
            return self.decoder.step(token, state)

    def forward(self, source: Ragged, target: Ragged) -> Tensor:
        """Logits (batch, time, vocabulary) of every target token under teacher forcing."""
        state = self.start(source)
        with scope("decoder"):
            logits, _ = self.decoder(self._shifted(target.values), state, target.lengths)
        return logits

    def losses(self, source: Ragged, target: Ragged) -> Tensor:
        """Nats of every target token (batch, time) under teacher forcing, without gradients; zero at padding."""
        with torch.no_grad():
            state = self.start(source)
            nats, _ = self.decoder.losses(self._shifted(target.values), target.values, state, target.lengths)
        return nats.masked_fill(~target.mask(), 0)

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Sum of nats over all target tokens, end-of-sequence included; in training with label smoothing and R-Drop."""
        source, target = batch.ragged("source"), batch.ragged("target")
        smoothing, agreement = self.config.label_smoothing, self.config.agreement
        twice = self.training and agreement > 0
        if twice:
            source, target = source.repeated(2), target.repeated(2)
        decoder_state, inputs = self.start(source), self._shifted(target.values)
        with scope("decoder"):
            if not (twice or (self.training and smoothing)):
                return self.decoder.total_loss(inputs, target.values, decoder_state, target.lengths)[0], None
            features, _ = self.decoder.features(inputs, decoder_state, target.lengths)
        real = target.mask()
        logits = at_least_float32(self.decoder.logits(features[real]))
        loss = F.cross_entropy(logits, target.values[real], reduction="sum", label_smoothing=smoothing)
        if not twice:
            return loss, None
        one, other = logits.log_softmax(-1).chunk(2)
        divergence = ((one.exp() - other.exp()) * (one - other)).sum() / 2  # symmetric Kullback-Leibler, halved
        return (loss + agreement * divergence) / 2, None

    def _shifted(self, target: Tokens) -> Tokens:
        """Decoder inputs: the target shifted right."""
        return F.pad(target, (1, -1), value=self.eos_id)


def share_embeddings(encoder: Encoder, decoder: Decoder, source_vocab: int, target_vocab: int) -> None:
    """Makes the encoder use the decoder's embedding table."""
    widths = encoder.embedding.embedding_dim, decoder.embedding.embedding_dim
    if source_vocab != target_vocab or widths[0] != widths[1]:
        raise ConfigError(
            f"shared_embeddings needs equal tables, but the source has {source_vocab} tokens of width {widths[0]} and "
            f"the target {target_vocab} of width {widths[1]}; train one tokenizer on both, and give both stacks the "
            "same embedding_size"
        )
    encoder.embedding = decoder.embedding
