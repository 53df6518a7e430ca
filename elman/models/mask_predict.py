"""Non-autoregressive translation with iterative refinement, mask-predict (Ghazvininejad et al., 2019).

The encoder predicts the target length. A bidirectional decoder predicts all positions at once; then the least confident
ones are masked and predicted again, given the others. The number of passes is fixed and does not grow with the target.

End-of-sequence is not predicted: the length replaces it. Sums of nats include the length's, so the number of
predictions equals the number of target positions with end-of-sequence.
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples, Ragged
from elman.errors import ConfigError
from elman.layers.base import at_least_float32
from elman.models.base import TRANSLATORS
from elman.models.encoder_decoder import Decoder, DecoderState, Encoder, share_embeddings
from elman.models.encoder_decoder.config import MaskPredictConfig, ParallelDecoderConfig
from elman.models.text_reader import Pooling
from elman.ops.cross_entropy import cross_entropy_sum
from elman.ops.state import map_state, take_rows
from elman.ops.taps import scope, stepping, tap
from elman.shapes import Lengths, Tokens

EVALUATION_MASKS = 3  # evaluation masks: all positions, even ones, odd ones


class DecodedTargets(NamedTuple):
    """Decoded sequences, without end-of-sequence and masks."""

    tokens: Ragged
    log_probs: Tensor  # (rows, longest): of each token when it was last predicted; 0 at padding
    scores: Tensor  # (rows,): mean log-probability of tokens and length, the ranking criterion


class ParallelDecoder(Decoder):
    """The decoder with an additional embedding for the mask, which is never predicted."""

    Config = ParallelDecoderConfig

    def __init__(self, config: ParallelDecoderConfig, vocab_size: int, source_size: int):
        super().__init__(config, vocab_size, source_size)
        self.mask_id, width = vocab_size, self.embedding.embedding_dim
        self.embedding = nn.Embedding(vocab_size + 1, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    @property
    def output_weight(self) -> Tensor:
        return super().output_weight[: self.vocab_size]


@TRANSLATORS.register("mask-predict")
class MaskPredict(nn.Module):
    """Sequence-to-sequence model with a fixed number of decoding passes.

    Batches have the fields `source` and `target`; the final `eos_id` of targets is removed.
    """

    Config = MaskPredictConfig
    sites: ClassVar = {"length.logits": "logits of the difference between target and source length"}

    def __init__(self, config: MaskPredictConfig, source_vocab: int, target_vocab: int, eos_id: int):
        super().__init__()
        self.config, self.vocab_size, self.eos_id = config, target_vocab, eos_id
        self.encoder = Encoder(config.encoder, source_vocab)
        self.decoder = ParallelDecoder(config.decoder, target_vocab, self.encoder.output_size)
        self.mask_id = self.decoder.mask_id
        self.pooling = Pooling("mean", self.encoder.output_size)
        self.to_length = nn.Linear(self.encoder.output_size, 2 * config.length_range + 1)
        if config.shared_embeddings:
            share_embeddings(self.encoder, self.decoder, source_vocab, target_vocab)

    def start(self, source: Ragged) -> tuple[Tensor, DecoderState]:
        """Log-probabilities (rows, 2 · length_range + 1) of length differences, and the decoder's state."""
        source = source._replace(lengths=source.lengths.to(source.values.device))
        with scope("encoder"):
            encoded = self.encoder(*source)
        with scope("length"):
            pooled = self.pooling(encoded, source.mask())
            with stepping():  # the whole target is one step
                scores = tap("logits", self.to_length(pooled.to(encoded.dtype)))
        with scope("decoder"):
            return at_least_float32(scores).log_softmax(-1), self.decoder.begin(encoded, source.lengths)

    def forward(self, source: Ragged, target: Ragged) -> Tensor:
        """Logits (batch, time, vocabulary) at every position of targets without end-of-sequence, masked with
        `mask_id`."""
        _, state = self.start(source)
        with scope("decoder"):
            return self.decoder(target.values, state, target.lengths)[0]

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Sum of nats over all target tokens and lengths, which replace end-of-sequence.

        In training a random number of tokens is masked, and the mean of their nats is multiplied by the number of
        tokens. Evaluation is deterministic: it averages the nats of each token with all tokens masked and with every
        other one visible, without smoothing and weights.
        """
        source, (tokens, sizes) = batch.ragged("source"), batch.ragged("target")
        tokens = tokens[:, : max(1, tokens.shape[1] - 1)]  # at least one position, which may be padding
        words = Ragged(tokens, sizes.to(tokens.device) - 1)
        lengths, decoder_state = self.start(source)
        far = self.config.length_range
        difference = (words.lengths - source.lengths.to(words.lengths.device)).clamp(-far, far) + far
        nats = F.nll_loss(lengths, difference, reduction="sum")
        if self.training:
            hidden = self._hidden(words)
            found = self._nats(words, hidden, decoder_state) * (words.lengths.sum() / hidden.sum().clamp(min=1))
            return found + self.config.length_weight * nats, None
        rows = torch.arange(len(words.values), device=words.values.device).repeat(EVALUATION_MASKS)
        words = Ragged(words.values[rows], words.lengths[rows])
        return self._nats(words, self._in_turn(words), take_rows(decoder_state, rows)) / 2 + nats, None

    @torch.inference_mode()
    def write(self, source: Ragged, iterations: int = 10, candidates: int = 5) -> DecodedTargets:
        """Decodes the best target of each row (at least one token) in `iterations` passes.

        Tries the `candidates` most probable lengths in parallel and takes the one with the highest mean log-probability
        of tokens and length. A pass masks length · (passes left) / iterations tokens. For a model in evaluation mode.
        """
        found, rows = self.tries(source, iterations, candidates), len(source.values)
        if not rows:
            return found
        step = len(found.scores) // rows
        sizes = found.tokens.lengths[::step]
        longest = int(sizes.max())
        tokens, log_probs = (part[::step, :longest] for part in (found.tokens.values, found.log_probs))
        return DecodedTargets(Ragged(tokens, sizes), log_probs, found.scores[::step])

    @torch.inference_mode()
    def tries(self, source: Ragged, iterations: int = 10, candidates: int = 5) -> DecodedTargets:
        """The decoded targets of all candidate lengths: those of the first row, best first, then those of the next.

        Each row has equally many; impossible lengths have score -inf.
        """
        if iterations < 1 or candidates < 1:
            raise ConfigError(f"iterations and candidates must be at least 1, not {iterations} and {candidates}")
        rows, device = len(source.values), source.values.device
        if not rows:
            none = at_least_float32(self.to_length.weight.new_zeros(0))
            return DecodedTargets(Ragged(source.values[:, :0], source.lengths), none.view(0, 0), none)
        likely, state = self.start(source)
        lengths, likely = self._best_lengths(likely, source.lengths.to(device), candidates)
        tries = lengths.shape[1]
        if tries > 1:
            state = map_state(lambda part: part.repeat_interleave(tries, 0), state)
        sizes = lengths.flatten()
        shortest, longest = torch.stack(sizes.aminmax()).tolist()  # the only host synchronization before the end
        tokens, log_probs = self._fill(state, sizes, iterations, longest, padded=shortest < longest)
        scores = (log_probs.sum(1).view(rows, tries) + likely) / (lengths + 1)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        order = (order + torch.arange(rows, device=device).unsqueeze(1) * tries).flatten()
        return DecodedTargets(Ragged(tokens[order], sizes[order]), log_probs[order], scores.flatten())

    def _best_lengths(self, likely: Tensor, source: Lengths, candidates: int) -> tuple[Tensor, Tensor]:
        """The most probable lengths (rows, candidates) and their log-probabilities; lengths below 1 are impossible."""
        far = self.config.length_range
        lengths = source.unsqueeze(1) + torch.arange(-far, far + 1, device=source.device)
        best = likely.masked_fill(lengths < 1, -torch.inf).topk(min(candidates, lengths.shape[1]), dim=1)
        return lengths.gather(1, best.indices).clamp(min=1), best.values

    def _fill(
        self, state: DecoderState, lengths: Lengths, iterations: int, longest: int, padded: bool
    ) -> tuple[Tokens, Tensor]:
        """Tokens and their log-probabilities (rows, longest), zeros at padding."""
        real = torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
        left = torch.arange(iterations, 0, -1, device=lengths.device).unsqueeze(1)
        again = (lengths * left // iterations).clamp(min=1)  # at least one token is masked in every pass
        hidden, tokens = real, torch.zeros_like(real, dtype=torch.long)
        log_probs = at_least_float32(torch.zeros_like(real, dtype=self.to_length.weight.dtype))
        log_probs = log_probs.masked_fill(~real, torch.inf)
        for number, count in enumerate(again.unbind()):
            if number:
                hidden = _lowest(log_probs, count)
            given = tokens.masked_fill(hidden, self.mask_id)
            with scope("decoder"):
                logits = at_least_float32(self.decoder(given, state, lengths if padded else None)[0])
            logits[..., self.eos_id] = -torch.inf  # the length decides where the target ends
            best, found = logits.max(-1)
            tokens = torch.where(hidden, found, tokens)
            log_probs = torch.where(hidden, best - logits.logsumexp(-1), log_probs)
        return tokens, log_probs.masked_fill(~real, 0)

    def _nats(self, words: Ragged, hidden: Tensor, state: DecoderState) -> Tensor:
        """Sum over masked tokens; label smoothing in training only."""
        decoder, smoothing = self.decoder, self.config.label_smoothing
        with scope("decoder"):
            features, _ = decoder.features(words.values.masked_fill(hidden, self.mask_id), state, words.lengths)
        features, right = features[hidden], words.values[hidden]
        if not (self.training and smoothing):
            return cross_entropy_sum(features, decoder.output_weight, decoder.output_bias, right)
        logits = at_least_float32(decoder.logits(features))
        return F.cross_entropy(logits, right, reduction="sum", label_smoothing=smoothing)

    def _hidden(self, words: Ragged) -> Tensor:
        """Random training mask: 1 to all tokens of each row, every number equally likely."""
        real, device = words.mask(), words.values.device
        share = torch.rand(len(real), device=device)
        count = torch.minimum((share * words.lengths).long() + 1, words.lengths)
        return _lowest(torch.rand(real.shape, device=device).masked_fill(~real, torch.inf), count) & real

    def _in_turn(self, words: Ragged) -> Tensor:
        """Evaluation masks of a batch that is repeated EVALUATION_MASKS times."""
        rows, longest = words.values.shape
        turn = torch.arange(rows, device=words.values.device).unsqueeze(1) // max(1, rows // EVALUATION_MASKS)
        place = torch.arange(longest, device=words.values.device)
        return words.mask() & ((turn == 0) | (place % 2 == turn - 1))


def _lowest(values: Tensor, count: Tensor) -> Tensor:
    """True at the `count` (rows,) lowest values of each row, at least one; ties with the last one are included."""
    last = values.sort(1).values.gather(1, count.clamp(min=1).unsqueeze(1) - 1)
    return values <= last
