"""Encoder-decoder (Sutskever et al., 2014; Cho et al., 2014): one stack reads, another writes."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples, Ragged
from elman.errors import ConfigError
from elman.models.base import TRANSLATORS
from elman.models.encoder_decoder.config import EncoderDecoderConfig
from elman.models.encoder_decoder.decoder import Decoder, DecoderState
from elman.models.encoder_decoder.encoder import Encoder
from elman.ops.taps import scope
from elman.shapes import Token, Tokens


@TRANSLATORS.register("encoder-decoder")
class EncoderDecoder(nn.Module):
    """Any sequence to any sequence.

    Batches have the fields `source` and `target`; a target ends in `eos_id`, which is also what its first word follows.
    """

    Config = EncoderDecoderConfig

    def __init__(self, config: EncoderDecoderConfig, source_vocab: int, target_vocab: int, eos_id: int):
        super().__init__()
        self.config, self.vocab_size, self.eos_id = config, target_vocab, eos_id
        self.encoder = Encoder(config.encoder, source_vocab)
        self.decoder = Decoder(config.decoder, target_vocab, self.encoder.output_size)
        if config.shared_embeddings:
            mine, others = self.encoder.embedding.weight.shape, self.decoder.embedding.weight.shape
            if mine != others:
                raise ConfigError(
                    f"shared_embeddings needs one table, but the source has {mine[0]} words of width {mine[1]} and the "
                    f"target {others[0]} of width {others[1]}; train one tokenizer on both, and give both stacks one "
                    "embedding_size"
                )
            self.encoder.embedding = self.decoder.embedding

    def start(self, source: Ragged) -> DecoderState:
        """The state before the first word of each target: all that is needed of the source."""
        tokens, lengths = source.values, source.lengths.to(source.values.device)
        with scope("encoder"):
            encoded = self.encoder(tokens, lengths)
        with scope("decoder"):
            return self.decoder.begin(encoded, lengths)

    def step(self, token: Token, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits (batch, vocabulary) of the word after `token`, and the new state; the first token is `eos_id`."""
        with scope("decoder"):
            return self.decoder.step(token, state)

    def forward(self, source: Ragged, target: Ragged) -> Tensor:
        """Logits (batch, time, vocabulary) of every word of targets that are known."""
        state = self.start(source)
        with scope("decoder"):
            logits, _ = self.decoder(self._moved(target.values), state, target.lengths)
        return logits

    def losses(self, source: Ragged, target: Ragged) -> Tensor:
        """Nats of every word of targets that are known (batch, time), without gradients; zero at padding."""
        with torch.no_grad():
            state = self.start(source)
            nats, _ = self.decoder.losses(self._moved(target.values), target.values, state, target.lengths)
        return nats.masked_fill(~target.mask(), 0)

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Sum of nats over all words of the targets, their ends included; in training smoothed, and with what two
        readings disagree about."""
        source, target = batch.ragged("source"), batch.ragged("target")
        smoothing, agreement = self.config.label_smoothing, self.config.agreement
        twice = self.training and agreement > 0
        if twice:
            source, target = source.repeated(2), target.repeated(2)
        begun, given = self.start(source), self._moved(target.values)
        with scope("decoder"):
            if not (twice or (self.training and smoothing)):
                return self.decoder.total_loss(given, target.values, begun, target.lengths)[0], None
            features, _ = self.decoder.features(given, begun, target.lengths)
        real = target.mask()
        logits = self.decoder.logits(features[real])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(logits, target.values[real], reduction="sum", label_smoothing=smoothing)
        if not twice:
            return loss, None
        return (loss + agreement * _disagreement(*logits.log_softmax(-1).chunk(2))) / 2, None

    def _moved(self, target: Tokens) -> Tokens:
        """What is given at each position: the word before it."""
        return F.pad(target, (1, -1), value=self.eos_id)


def _disagreement(one: Tensor, other: Tensor) -> Tensor:
    """Half the divergence of each of two lots of log probabilities from the other, summed."""
    return ((one.exp() - other.exp()) * (one - other)).sum() / 2
