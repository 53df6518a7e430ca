"""Parallel translation with iterative refinement, mask-predict (Ghazvininejad et al., 2019).

An encoder reads the source and says how long the target will be. A decoder that sees both sides fills all of its places
at once; then those it was least sure of are hidden and filled again, with the others in sight. So the number of passes
is chosen, and does not grow with the target.

The end is not among the words that are predicted: the length tells it. In every sum of nats the length takes its place,
so the positions of a target, its end counted, are as many as the things to be predicted.
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples, Ragged
from elman.errors import ConfigError
from elman.models.base import TRANSLATORS
from elman.models.encoder_decoder import Decoder, DecoderState, Encoder
from elman.models.mask_predict.config import MaskPredictConfig, ParallelDecoderConfig
from elman.models.pooling import Pooling
from elman.ops.cross_entropy import cross_entropy_sum
from elman.ops.state import map_state, take_rows
from elman.ops.taps import scope, stepping, tap
from elman.shapes import Lengths, Tokens

TURNS = 3  # ways in which evaluation hides a target: all of it, every even place, every odd one


class Written(NamedTuple):
    """What was written: never the end, never the mask."""

    tokens: Ragged
    log_probs: Tensor  # (rows, longest): of each token when it was last filled in; 0 at padding
    scores: Tensor  # (rows,): mean log-probability of tokens and length, by which lengths were compared


class ParallelDecoder(Decoder):
    """The decoder with one more word vector, the mask, which is never an answer."""

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
    """Any sequence to any sequence, in as many passes as one likes.

    Batches have the fields `source` and `target`; a target ends in `eos_id`, which is cut off.
    """

    Config = MaskPredictConfig
    sites: ClassVar = {"length.logits": "scores of every difference between the lengths of target and source"}

    def __init__(self, config: MaskPredictConfig, source_vocab: int, target_vocab: int, eos_id: int):
        super().__init__()
        self.config, self.vocab_size, self.eos_id = config, target_vocab, eos_id
        self.encoder = Encoder(config.encoder, source_vocab)
        self.decoder = ParallelDecoder(config.decoder, target_vocab, self.encoder.output_size)
        self.mask_id = self.decoder.mask_id
        self.pooling = Pooling("mean", self.encoder.output_size)
        self.to_length = nn.Linear(self.encoder.output_size, 2 * config.length_range + 1)
        if config.shared_embeddings:
            widths = self.encoder.embedding.embedding_dim, self.decoder.embedding.embedding_dim
            if source_vocab != target_vocab or widths[0] != widths[1]:
                raise ConfigError(
                    f"shared_embeddings needs one table, but the source has {source_vocab} words of width {widths[0]} "
                    f"and the target {target_vocab} of width {widths[1]}; train one tokenizer on both, and give both "
                    "stacks one embedding_size"
                )
            self.encoder.embedding = self.decoder.embedding

    def start(self, source: Ragged) -> tuple[Tensor, DecoderState]:
        """Log-probabilities (rows, 2 · length_range + 1) of differences in length, and what the decoder sees."""
        source = source._replace(lengths=source.lengths.to(source.values.device))
        with scope("encoder"):
            encoded = self.encoder(*source)
        with scope("length"):
            pooled = self.pooling(encoded, source.mask())
            with stepping():  # the target as a whole is one step
                scores = tap("logits", self.to_length(pooled.to(encoded.dtype)))
        with scope("decoder"):
            return _wide(scores).log_softmax(-1), self.decoder.begin(encoded, source.lengths)

    def forward(self, source: Ragged, target: Ragged) -> Tensor:
        """Logits (batch, time, vocabulary) at every place of targets without end, in which `mask_id` hides words."""
        _, state = self.start(source)
        with scope("decoder"):
            return self.decoder(target.values, state, target.lengths)[0]

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Sum of nats over all words of the targets and over their lengths, which stand for the ends.

        In training some words are hidden, as many as torch's dice say, and those hidden stand for all: the mean of
        their nats times the words. Evaluation throws no dice: each word is predicted twice, once with all hidden and
        once with every other one in sight, and the mean of both is taken, without smoothing and weights.
        """
        source, words = batch.ragged("source"), self._without_end(batch.ragged("target"))
        lengths, begun = self.start(source)
        far = self.config.length_range
        difference = (words.lengths - source.lengths.to(words.lengths.device)).clamp(-far, far) + far
        nats = F.nll_loss(lengths, difference, reduction="sum")
        if self.training:
            hidden = self._hidden(words)
            found = self._nats(words, hidden, begun) * (words.lengths.sum() / hidden.sum().clamp(min=1))
            return found + self.config.length_weight * nats, None
        rows = torch.arange(len(words.values), device=words.values.device).repeat(TURNS)
        words = Ragged(words.values[rows], words.lengths[rows])
        return self._nats(words, self._in_turn(words), take_rows(begun, rows)) / 2 + nats, None

    @torch.inference_mode()
    def write(self, source: Ragged, iterations: int = 10, candidates: int = 5) -> Written:
        """The best target of each row, one word long at least, after filling its places `iterations` times.

        The `candidates` most probable lengths of each row are tried at once; the one with the highest mean
        log-probability of its words and the length itself is taken. A pass hides length · (passes left) / iterations
        words. For a model in evaluation mode.
        """
        found, rows = self.tries(source, iterations, candidates), len(source.values)
        if not rows:
            return found
        step = len(found.scores) // rows
        sizes = found.tokens.lengths[::step]
        longest = int(sizes.max())
        tokens, log_probs = (part[::step, :longest] for part in (found.tokens.values, found.log_probs))
        return Written(Ragged(tokens, sizes), log_probs, found.scores[::step])

    @torch.inference_mode()
    def tries(self, source: Ragged, iterations: int = 10, candidates: int = 5) -> Written:
        """The same of every length that was tried: those of the first row, the best first, then those of the next.

        Each row has as many; the score of a length that cannot be is -inf.
        """
        if iterations < 1 or candidates < 1:
            raise ConfigError(f"iterations and candidates must be 1 or more, not {iterations} and {candidates}")
        rows, device = len(source.values), source.values.device
        if not rows:
            none = _wide(self.to_length.weight.new_zeros(0))
            return Written(Ragged(source.values[:, :0], source.lengths), none.view(0, 0), none)
        likely, state = self.start(source)
        lengths, likely = self._best_lengths(likely, source.lengths.to(device), candidates)
        tries = lengths.shape[1]
        if tries > 1:
            state = map_state(lambda part: part.repeat_interleave(tries, 0), state)
        sizes = lengths.flatten()
        shortest, longest = torch.stack(sizes.aminmax()).tolist()  # the only wait for the device before the end
        tokens, log_probs = self._fill(state, sizes, iterations, longest, padded=shortest < longest)
        scores = (log_probs.sum(1).view(rows, tries) + likely) / (lengths + 1)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        order = (order + torch.arange(rows, device=device).unsqueeze(1) * tries).flatten()
        return Written(Ragged(tokens[order], sizes[order]), log_probs[order], scores.flatten())

    def _best_lengths(self, likely: Tensor, source: Lengths, candidates: int) -> tuple[Tensor, Tensor]:
        """The most probable lengths (rows, candidates), and how probable they are; those below 1 cannot be."""
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
        again = (lengths * left // iterations).clamp(min=1)  # short targets too are looked over in every pass
        hidden, tokens = real, torch.zeros_like(real, dtype=torch.long)
        log_probs = _wide(torch.zeros_like(real, dtype=self.to_length.weight.dtype)).masked_fill(~real, torch.inf)
        for number, count in enumerate(again.unbind()):
            if number:
                hidden = _lowest(log_probs, count)
            given = tokens.masked_fill(hidden, self.mask_id)
            with scope("decoder"):
                logits = _wide(self.decoder(given, state, lengths if padded else None)[0])
            logits[..., self.eos_id] = -torch.inf  # it is the length that ends
            best, found = logits.max(-1)
            tokens = torch.where(hidden, found, tokens)
            log_probs = torch.where(hidden, best - logits.logsumexp(-1), log_probs)
        return tokens, log_probs.masked_fill(~real, 0)

    def _nats(self, words: Ragged, hidden: Tensor, state: DecoderState) -> Tensor:
        """Of the hidden words, summed; smoothed in training only."""
        decoder, smoothing = self.decoder, self.config.label_smoothing
        with scope("decoder"):
            features, _ = decoder.features(words.values.masked_fill(hidden, self.mask_id), state, words.lengths)
        features, right = features[hidden], words.values[hidden]
        if not (self.training and smoothing):
            return cross_entropy_sum(features, decoder.output_weight, decoder.output_bias, right)
        logits = _wide(decoder.logits(features))
        return F.cross_entropy(logits, right, reduction="sum", label_smoothing=smoothing)

    def _without_end(self, target: Ragged) -> Ragged:
        """One place at least, which may be padding: so there is something to compute with."""
        tokens = target.values[:, : max(1, target.values.shape[1] - 1)]
        return Ragged(tokens, target.lengths.to(tokens.device) - 1)

    def _hidden(self, words: Ragged) -> Tensor:
        """Where words are hidden in training: 1 to all of each row, every number as likely as any other."""
        real, device = words.mask(), words.values.device
        share = torch.rand(len(real), device=device)
        count = torch.minimum((share * words.lengths).long() + 1, words.lengths)
        return _lowest(torch.rand(real.shape, device=device).masked_fill(~real, torch.inf), count) & real

    def _in_turn(self, words: Ragged) -> Tensor:
        """Where words are hidden in evaluation, in a batch that comes TURNS times."""
        turn = torch.arange(TURNS, device=words.values.device).repeat_interleave(len(words.values) // TURNS)
        place = torch.arange(words.values.shape[1], device=words.values.device)
        turn = turn.unsqueeze(1)
        return words.mask() & ((turn == 0) | (place % 2 == turn - 1))


def _lowest(values: Tensor, count: Tensor) -> Tensor:
    """True at the `count` (rows,) lowest values of each row, at one at least; equals of the last one are with it."""
    last = values.sort(1).values.gather(1, count.clamp(min=1).unsqueeze(1) - 1)
    return values <= last


def _wide(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
