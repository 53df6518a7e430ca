"""Transducers (Graves, 2012): strictly monotonic sequence-to-sequence models.

At each source position the model emits tokens or moves on; after a token it may emit another one at the same position.
End-of-sequence is emitted after the last position only, so outputs neither end early nor repeat parts of the source:
suited to spelling and pronunciation, not to languages with different word order. The alignment is latent: the loss sums
over all alignments exactly.
"""

from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples
from elman.config import Config
from elman.layers.base import at_least_float32
from elman.models.base import TRANSLATORS
from elman.models.encoder_decoder.config import EncoderConfig
from elman.models.encoder_decoder.model import Encoder, EncoderDecoder
from elman.models.language_model import LanguageModel
from elman.models.stack import StackConfig
from elman.ops.monotonic_alignment import NEVER, Moves, advance
from elman.ops.taps import scope, stepping, tap
from elman.shapes import Lengths, Sequence, State, Step, Token, Tokens


class TransducerConfig(Config):
    """Settings of a monotonic sequence-to-sequence model."""

    type: Literal["transducer"] = "transducer"
    """Model type: monotonic transducer."""
    encoder: EncoderConfig = Field(default_factory=EncoderConfig)
    """Encoder of the source."""
    decoder: StackConfig = Field(default_factory=StackConfig)
    """Prediction network: a stack over the target prefix."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing: share of the target distribution that is spread evenly over the vocabulary, where the token is
    emitted."""


class TransducerState(NamedTuple):
    """Everything the next token depends on; rows can be selected as in any state."""

    layers: State
    places: Tensor  # (batch, places, width): a start position, the projected source, an end position
    lengths: Tensor  # of the source
    joint: Tensor  # (batch, places, vocabulary): log-probability of emitting the token here next


class _Emissions(NamedTuple):
    """Log-probabilities of moves and emissions at each target and source position: (batch, time, places, ...)."""

    moves: Moves
    write: Tensor  # (..., vocabulary): the token, given that one is emitted


class TransducerDecoder(LanguageModel):
    """Prediction network and joint network: every target prefix is combined with every source position.

    ```
    target prefix ─► stack ─► h ─┬─► tanh(W h + U x) ─┬─► emit here, emit here again?
    source ───────────────► x ───┘                    └─► which token
    ```
    """

    Config = StackConfig
    sites: ClassVar = {
        **LanguageModel.sites,
        "alignment": "log-probability that the token is emitted at each source position: (time, places) (log α)",
    }

    def __init__(self, config: StackConfig, vocab_size: int, source_size: int, eos_id: int):
        super().__init__(config, vocab_size)
        self.eos_id, width = eos_id, self.stack.output_size
        self.from_source = nn.Linear(source_size, width, bias=False)
        self.from_top = nn.Linear(width, width)
        self.moves = nn.Linear(width, 2)  # logits: emit here again; stop here

    def initial_state(self, batch: int) -> TransducerState:
        """The state for an empty source."""
        empty = self.embedding.weight.new_zeros(batch, 0, self.from_source.in_features)
        return self.begin(empty, torch.zeros(batch, dtype=torch.long, device=empty.device))

    def begin(self, source: Sequence, lengths: Lengths) -> TransducerState:
        """The state before the first token: at the start position."""
        places = F.pad(self.from_source(source), (0, 0, 1, 1))
        first = at_least_float32(places).new_full((*places.shape[:2], 1), NEVER).index_fill(1, lengths.new_zeros(1), 0)
        joint = first.expand(-1, -1, self.vocab_size)
        return TransducerState(self.stack.initial_state(len(source)), places, lengths, joint)

    def forward(
        self, tokens: Tokens, state: TransducerState | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, TransducerState]:
        """Log-probabilities (batch, time, vocabulary) of the token after each position, and the new state."""
        place, write, state = self._known(tokens, state, lengths)
        return tap("output.logits", (place.unsqueeze(3) + write).logsumexp(2)), state

    def step(self, token: Token, state: TransducerState) -> tuple[Tensor, TransducerState]:
        """Log-probabilities (batch, vocabulary) after one more token, and the new state."""
        with stepping():
            top, layers = self.stack.step(tap("embedding", self.embedding(token) * self.scale), state.layers)
            ways = self._ways(top.unsqueeze(1), state)
            joint = self._next(_after(state.joint, token), ways, 0).unsqueeze(2) + ways.write[:, 0]
            return tap("output.logits", joint.logsumexp(1)), state._replace(layers=layers, joint=joint)

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats of every target token; undefined at padding."""
        place, write, state = self._known(inputs, state, lengths)
        return -(place + _of(write, targets)).logsumexp(2), state

    def total_loss(
        self,
        inputs: Tokens,
        targets: Tokens,
        state: State | None = None,
        lengths: Lengths | None = None,
        smoothing: float = 0.0,
    ) -> tuple[Tensor, State]:
        """Sum of nats over real positions."""
        place, write, state = self._known(inputs, state, lengths)
        found = place + _of(write, targets)
        nats = -found.logsumexp(2)
        if smoothing:
            possible = write.masked_fill(write < NEVER / 2, 0).mean(3)
            nats = (1 - smoothing) * nats - smoothing * (found.softmax(2).detach() * possible).sum(2)
        if lengths is not None:
            real = torch.arange(targets.shape[1], device=targets.device) < lengths.to(targets.device)[:, None]
            nats = nats[real]
        return nats.sum(), state

    def _known(
        self, tokens: Tokens, state: TransducerState | None, lengths: Lengths | None
    ) -> tuple[Tensor, Tensor, TransducerState]:
        """Teacher forcing: for each target position, log-probability of each source position emitting the next token
        (batch, time, places), log-probabilities of the token (..., vocabulary), and the new state."""
        state = self.initial_state(len(tokens)) if state is None else state
        batch, longest = tokens.shape
        top, layers = self.stack(self._embedded(tokens), state.layers, lengths)
        ways = self._ways(top, state)
        written = _of(ways.write, F.pad(tokens[:, 1:], (0, 1)))  # the next token is known, except after the last
        here, places = _after(state.joint, tokens[:, 0]), []
        for time in range(longest):
            places.append(self._next(here, ways, time))
            here = (places[-1] + written[:, time]).log_softmax(1)
        place = torch.stack(places, 1)
        rows = torch.arange(batch, device=tokens.device)
        last = torch.full_like(rows, longest) if lengths is None else lengths.to(tokens.device)
        joint = place[rows, last - 1].unsqueeze(2) + ways.write[rows, last - 1]
        return place, ways.write, state._replace(layers=layers, joint=joint)

    def _next(self, here: Step, ways: _Emissions, time: int) -> Step:
        """Distribution over the source position that emits the next token, given that of the last one."""
        with stepping():
            return tap("alignment", advance(here, Moves(*(move[:, time] for move in ways.moves))))

    def _ways(self, top: Sequence, state: TransducerState) -> _Emissions:
        lengths = state.lengths.to(top.device)
        mixed = torch.tanh(self.from_top(top).unsqueeze(2) + state.places.unsqueeze(1))
        mixed = self.stack.drop_output(mixed.flatten(1, 2)).view_as(mixed)
        place, last = torch.arange(mixed.shape[2], device=top.device), lengths.view(-1, 1, 1)
        inside, end = (place > 0) & (place <= last), place == last + 1
        stay, stop = at_least_float32(self.moves(mixed)).unbind(3)
        sure, never = stay.new_zeros(()), stay.new_full((), NEVER)
        moves = Moves(
            stay=torch.where(inside, F.logsigmoid(stay), torch.where(end, sure, never)),
            go=torch.where(inside, F.logsigmoid(-stay), torch.where(place == 0, sure, never)),
            stop=torch.where(inside, F.logsigmoid(stop), torch.where(end, sure, never)),
            leave=torch.where(inside, F.logsigmoid(-stop), torch.where(place == 0, sure, never)),
        )
        is_end = torch.arange(self.vocab_size, device=top.device) == self.eos_id
        words = at_least_float32(self.logits(mixed)).masked_fill(is_end, NEVER).log_softmax(3)
        return _Emissions(moves, torch.where(inside.unsqueeze(3), words, torch.where(is_end, sure, never)))


@TRANSLATORS.register("transducer")
class Transducer(EncoderDecoder):
    """Monotonic sequence-to-sequence model (Graves, 2012), with the batches of an encoder-decoder."""

    Config = TransducerConfig  # type: ignore[assignment]
    config: TransducerConfig  # type: ignore[assignment]

    def __init__(self, config: TransducerConfig, source_vocab: int, target_vocab: int, eos_id: int):
        nn.Module.__init__(self)
        self.config, self.vocab_size, self.eos_id = config, target_vocab, eos_id
        self.encoder = Encoder(config.encoder, source_vocab)
        self.decoder = TransducerDecoder(config.decoder, target_vocab, self.encoder.output_size, eos_id)  # type: ignore

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Sum of nats over all target tokens, end-of-sequence included; label smoothing in training only."""
        source, target = batch.ragged("source"), batch.ragged("target")
        smoothing = self.config.label_smoothing if self.training else 0.0
        decoder_state, inputs = self.start(source), self._shifted(target.values)
        with scope("decoder"):
            loss, _ = self.decoder.total_loss(inputs, target.values, decoder_state, target.lengths, smoothing)  # type: ignore
        return loss, None


def _of(values: Tensor, words: Tokens) -> Tensor:
    """Selects one vocabulary entry per time step from (batch, time, places, vocabulary)."""
    index = words[:, :, None, None].expand(-1, -1, values.shape[2], 1)
    return values.gather(3, index).squeeze(3)


def _after(joint: Tensor, token: Token) -> Tensor:
    """Posterior over source positions, given the emitted token."""
    return _of(joint.unsqueeze(1), token.unsqueeze(1))[:, 0].log_softmax(1)
