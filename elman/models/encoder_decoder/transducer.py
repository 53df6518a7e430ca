"""Transducers (Graves, 2012): the target is written while the source is read, from left to right and never back.

The reader comes to each place of the source in turn, and writes there or passes it; where it wrote, it writes once more
or goes on. The end stands after the last place and nowhere else. So no end comes early and nothing is read twice:
made for spelling and sound, not for languages of unlike word order. Which word was written where is not known: all ways
through the source are summed, exactly.
"""

from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples
from elman.config import Config
from elman.models.base import TRANSLATORS
from elman.models.encoder_decoder.config import EncoderConfig
from elman.models.encoder_decoder.encoder import Encoder
from elman.models.encoder_decoder.model import EncoderDecoder
from elman.models.language_model import LanguageModel
from elman.models.stack import StackConfig
from elman.ops.monotonic_alignment import NEVER, Moves, advance
from elman.ops.taps import scope, stepping, tap
from elman.shapes import Lengths, Sequence, State, Step, Token, Tokens


class TransducerConfig(Config):
    """From any sequence to one in the same order."""

    type: Literal["transducer"] = "transducer"
    """Kind of model: writes while it reads, and never goes back."""
    encoder: EncoderConfig = Field(default_factory=EncoderConfig)
    """What reads the source."""
    decoder: StackConfig = Field(default_factory=StackConfig)
    """What reads the target that was written so far."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the certainty that training takes from the right word and spreads over all, where it is written."""


class TransducerState(NamedTuple):
    """All that the next word depends on; rows can be taken like those of any state."""

    layers: State
    places: Tensor  # (batch, places, width): a start, the source as it is mixed in, and its end
    lengths: Tensor  # of the source
    joint: Tensor  # (batch, places, vocabulary): log-probability of the next word, written at this place


class _Ways(NamedTuple):
    """What can happen at each word and place, in logarithms: (batch, time, places, ...)."""

    moves: Moves
    write: Tensor  # (..., vocabulary): this word, if one is written


class TransducerDecoder(LanguageModel):
    """A language model of the target, whose every word is mixed with every place of the source.

    ```
    words so far ─► stack ─► h ─┬─► tanh(W h + U x) ─┬─► write here, write here once more?
    source ──────────────► x ───┘                    └─► which word
    ```
    """

    Config = StackConfig
    sites: ClassVar = {
        **LanguageModel.sites,
        "alignment": "log-probability that a word is written at each place of the source: (time, places) (log α)",
    }

    def __init__(self, config: StackConfig, vocab_size: int, source_size: int, eos_id: int):
        super().__init__(config, vocab_size)
        self.eos_id, width = eos_id, self.stack.output_size
        self.from_source = nn.Linear(source_size, width, bias=False)
        self.from_top = nn.Linear(width, width)
        self.moves = nn.Linear(width, 2)  # stay, if it was here; stop, if not

    def initial_state(self, batch: int) -> TransducerState:
        """Before a source without any word."""
        empty = self.embedding.weight.new_zeros(batch, 0, self.from_source.in_features)
        return self.begin(empty, torch.zeros(batch, dtype=torch.long, device=empty.device))

    def begin(self, source: Sequence, lengths: Lengths) -> TransducerState:
        """The state before the first word: at the start, whatever word may come before."""
        places = F.pad(self.from_source(source), (0, 0, 1, 1))
        first = _precise(places).new_full((*places.shape[:2], 1), NEVER).index_fill(1, lengths.new_zeros(1), 0)
        joint = first.expand(-1, -1, self.vocab_size)
        return TransducerState(self.stack.initial_state(len(source)), places, lengths, joint)

    def forward(
        self, tokens: Tokens, state: TransducerState | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, TransducerState]:
        """Log-probabilities (batch, time, vocabulary) of the word after each position, and the new state."""
        place, write, state = self._known(tokens, state, lengths)
        return tap("output.logits", (place.unsqueeze(3) + write).logsumexp(2)), state

    def step(self, token: Token, state: TransducerState) -> tuple[Tensor, TransducerState]:
        """Log-probabilities (batch, vocabulary) after one more word, and the new state."""
        with stepping():
            top, layers = self.stack.step(tap("embedding", self.embedding(token) * self.scale), state.layers)
            ways = self._ways(top.unsqueeze(1), state)
            joint = self._next(_after(state.joint, token), ways, 0).unsqueeze(2) + ways.write[:, 0]
            return tap("output.logits", joint.logsumexp(1)), state._replace(layers=layers, joint=joint)

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats of every target; padding gives rubbish."""
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
        """For each position of a target that is known, in logarithms: where the next word is written (batch, time,
        places), and which (..., vocabulary); and the new state."""
        state = self.initial_state(len(tokens)) if state is None else state
        config, (batch, longest) = self.config, tokens.shape
        share = config.dropout if config.input_dropout is None else config.input_dropout
        x = self.stack.drop(tap("embedding", self._embed(tokens)), share)
        top, layers = self.stack(x, state.layers, lengths)
        ways = self._ways(top, state)
        written = _of(ways.write, F.pad(tokens[:, 1:], (0, 1)))  # the word that comes next is known, but for the last
        here, places = _after(state.joint, tokens[:, 0]), []
        for time in range(longest):
            places.append(self._next(here, ways, time))
            here = (places[-1] + written[:, time]).log_softmax(1)
        place = torch.stack(places, 1)
        rows = torch.arange(batch, device=tokens.device)
        last = torch.full_like(rows, longest) if lengths is None else lengths.to(tokens.device)
        joint = place[rows, last - 1].unsqueeze(2) + ways.write[rows, last - 1]
        return place, ways.write, state._replace(layers=layers, joint=joint)

    def _next(self, here: Step, ways: _Ways, time: int) -> Step:
        """Where the next word is written, from where the last one was."""
        with stepping():
            return tap("alignment", advance(here, Moves(*(move[:, time] for move in ways.moves))))

    def _ways(self, top: Sequence, state: TransducerState) -> _Ways:
        config, lengths = self.config, state.lengths.to(top.device)
        mixed = torch.tanh(self.from_top(top).unsqueeze(2) + state.places.unsqueeze(1))
        share = config.dropout if config.output_dropout is None else config.output_dropout
        mixed = self.stack.drop(mixed.flatten(1, 2), share).view_as(mixed)
        place, last = torch.arange(mixed.shape[2], device=top.device), lengths.view(-1, 1, 1)
        inside, end = (place > 0) & (place <= last), place == last + 1
        stay, stop = _precise(self.moves(mixed)).unbind(3)
        sure, never = stay.new_zeros(()), stay.new_full((), NEVER)
        moves = Moves(
            stay=torch.where(inside, F.logsigmoid(stay), torch.where(end, sure, never)),
            go=torch.where(inside, F.logsigmoid(-stay), torch.where(place == 0, sure, never)),
            stop=torch.where(inside, F.logsigmoid(stop), torch.where(end, sure, never)),
            leave=torch.where(inside, F.logsigmoid(-stop), torch.where(place == 0, sure, never)),
        )
        is_end = torch.arange(self.vocab_size, device=top.device) == self.eos_id
        words = _precise(self.logits(mixed)).masked_fill(is_end, NEVER).log_softmax(3)
        return _Ways(moves, torch.where(inside.unsqueeze(3), words, torch.where(is_end, sure, never)))


@TRANSLATORS.register("transducer")
class Transducer(EncoderDecoder):
    """From any sequence to one in the same order (Graves, 2012); batches as those of any encoder-decoder."""

    Config = TransducerConfig  # type: ignore[assignment]
    config: TransducerConfig  # type: ignore[assignment]

    def __init__(self, config: TransducerConfig, source_vocab: int, target_vocab: int, eos_id: int):
        nn.Module.__init__(self)
        self.config, self.vocab_size, self.eos_id = config, target_vocab, eos_id
        self.encoder = Encoder(config.encoder, source_vocab)
        self.decoder = TransducerDecoder(config.decoder, target_vocab, self.encoder.output_size, eos_id)  # type: ignore

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Sum of nats over all words of the targets, their ends included; smoothed in training only."""
        source, target = batch.ragged("source"), batch.ragged("target")
        smoothing = self.config.label_smoothing if self.training else 0.0
        begun, given = self.start(source), self._moved(target.values)
        with scope("decoder"):
            loss, _ = self.decoder.total_loss(given, target.values, begun, target.lengths, smoothing)  # type: ignore
        return loss, None


def _of(values: Tensor, words: Tokens) -> Tensor:
    """Of (batch, time, places, vocabulary), the entries of one word for each time."""
    index = words[:, :, None, None].expand(-1, -1, values.shape[2], 1)
    return values.gather(3, index).squeeze(3)


def _after(joint: Tensor, token: Token) -> Tensor:
    """Where the reader stands, knowing which word was written."""
    return _of(joint.unsqueeze(1), token.unsqueeze(1))[:, 0].log_softmax(1)


def _precise(x: Tensor) -> Tensor:
    """Products of many probabilities, in float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
