"""Masked language model (Devlin et al., 2019): some tokens are hidden, and both sides tell what they were.

It gives no probability of a text, for its predictions do not chain. What it gives instead is the pseudo-likelihood
(Salazar et al., 2020): each token's probability with all others in sight. That compares masked models with each other
only: a token's right side tells much about it, and the end of a document is no secret where the last place is seen.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, NoReturn

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from elman.errors import ConfigError
from elman.models.base import MODELS, cannot_step
from elman.models.language_model import LanguageModel
from elman.models.stack import Entry, StackConfig, make_norm
from elman.ops.cross_entropy import cross_entropy_each, cross_entropy_sum
from elman.shapes import Lengths, State, Token, Tokens

POSITIONS = 2**15  # read at once where tokens are masked in turn: bounds the memory that a long text takes
BLOCK: list[Entry] = [{"two-way-attention": {}}, {"feedforward": {}}]


class MaskedConfig(StackConfig):
    """A stack that sees both sides, and what is hidden from it."""

    both_sides: ClassVar[bool] = True

    type: Literal["masked"] = "masked"  # type: ignore[assignment]
    """Kind of model: a stack that fills gaps, with both sides in sight."""
    pattern: list[Entry] = Field(default_factory=lambda: [*BLOCK, *BLOCK])
    """Layers from bottom to top, as in a stack; those that see both sides may be among them."""
    positions: Literal["none", "learned", "sinusoidal"] = "learned"
    """What is added to the word vectors to tell their place."""
    residual: bool = True
    """Add each layer's input to its output."""
    norm: Literal["none", "pre", "post"] = "pre"
    """Norm before each layer (and once at the top), after it, or not at all."""
    mask_share: float = Field(0.15, gt=0, le=1)
    """Share of the tokens that are hidden in training and have to be found."""
    keep_share: float = Field(0.1, ge=0, le=1)
    """Share of the hidden ones that stay in sight after all: so the model keeps an eye on tokens it can see."""
    random_share: float = Field(0.1, ge=0, le=1)
    """Share of the hidden ones that are replaced by any token instead of the mask."""
    mask_id: int | None = Field(None, ge=0)
    """The token that is the mask, where the vocabulary has one; null adds one more word vector for it."""
    head: Literal["none", "dense"] = "none"
    """What stands between stack and vocabulary: nothing, or a dense layer with GELU and norm, as BERT has."""

    @model_validator(mode="after")
    def _shares(self) -> "MaskedConfig":
        if self.keep_share + self.random_share > 1:
            raise ValueError(
                f"keep_share and random_share are parts of what is hidden, but {self.keep_share} and "
                f"{self.random_share} are more than all of it"
            )
        return self


class Found(NamedTuple):
    """Where tokens were masked, and what the model makes of these places."""

    rows: Tensor
    places: Tensor
    features: Tensor


@MODELS.register("masked")
class Masked(LanguageModel):
    """Fills gaps with both sides in sight: a stack of any layers, trained to find hidden tokens."""

    Config = MaskedConfig
    prediction: ClassVar = "masked"
    sites: ClassVar = {
        "embedding": "word vectors of the text, before dropout (x)",
        "position": "what is added to a word vector for its place, with model.positions (p)",
        "output.logits": "scores of every possible token at its own place, before the softmax",
    }
    config: MaskedConfig

    def __init__(self, config: MaskedConfig, vocab_size: int):
        super().__init__(config, vocab_size)
        words, width = self.embedding.weight.shape
        self.mask_id = words if config.mask_id is None else config.mask_id
        if config.mask_id is None:
            self.embedding = nn.Embedding(words + 1, width)
            nn.init.normal_(self.embedding.weight, std=width**-0.5)
        elif config.mask_id >= words and not self.embedding.weight.is_meta:  # there, no vocabulary is known yet
            raise ConfigError(
                f"model.mask_id is {config.mask_id}, but the vocabulary has the ids 0 to {words - 1}; "
                "leave it out where no token is a mask"
            )
        self.head = _Dense(config, self.stack.output_size) if config.head == "dense" else None

    def initial_state(self, batch: int) -> Tensor:
        """Rows without numbers: every piece of text stands alone."""
        return self.embedding.weight.new_zeros(batch, 0)

    def step(self, token: Token, state: State) -> NoReturn:
        raise cannot_step()

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats of every target with all others in sight, each masked in its turn: as many passes as positions.

        Their sum is the negative pseudo-log-likelihood. The text is `targets`; `inputs`, which is the same moved by
        one, is not looked at.
        """
        return self._nats(targets, lengths, apart=max(1, targets.shape[1])), self.initial_state(len(targets))

    def quick_losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """The same in few passes: about as many tokens are masked at once as in training, evenly spread.

        No dice: the n-th position is always masked in the same company, so one number follows a whole training.
        """
        return self._nats(targets, lengths, round(1 / self.config.mask_share)), self.initial_state(len(targets))

    def total_loss(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats summed over the tokens that were hidden, times real positions over hidden ones.

        So training, which divides by all real positions, gets the mean over hidden tokens. The text is `targets`; what
        is hidden is drawn from torch's own dice.
        """
        real = _real(targets, lengths)
        given, hidden = self.hide(targets, real)
        features, state = self.features(given, state, lengths)
        nats = cross_entropy_sum(features[hidden], self.output_weight, self.output_bias, targets[hidden])
        return nats * (real.sum() / hidden.sum().clamp(min=1)), state

    def hide(self, tokens: Tokens, real: Tensor) -> tuple[Tokens, Tensor]:
        """The text with some real tokens hidden, and where they are: one at least, lest a loss of zero tell lies."""
        config = self.config
        dice = torch.rand(tokens.shape, device=tokens.device)
        hidden = real & (dice <= dice.masked_fill(~real, 1.0).min().clamp(min=config.mask_share))
        how = torch.rand(tokens.shape, device=tokens.device)
        anything = torch.randint_like(tokens, self.vocab_size)
        instead = torch.where(how < config.keep_share + config.random_share, anything, self.mask_id)
        instead = torch.where(how < config.keep_share, tokens, instead)
        return torch.where(hidden, instead, tokens), hidden

    @torch.no_grad()
    def masked_logits(self, tokens: Tokens, lengths: Lengths | None = None) -> Tensor:
        """Logits (batch, time, vocabulary) of each position, masked in its turn; zeros at padding."""
        logits = self.output_weight.new_zeros(*tokens.shape, self.vocab_size)
        for rows, places, features in self._in_turn(tokens, lengths, max(1, tokens.shape[1])):
            logits[rows, places] = self.logits(features).to(logits.dtype)
        return logits

    def features(self, tokens: Tokens, state: State | None, lengths: Lengths | None) -> tuple[Tensor, State]:
        """The top layer's output, ready for the vocabulary; no piece of text goes on from another."""
        features, _ = super().features(tokens, None, lengths)
        return features if self.head is None else self.head(features), self.initial_state(len(tokens))

    @property
    def output_weight(self) -> Tensor:
        return super().output_weight[: self.vocab_size]  # an added mask is never the answer

    @torch.no_grad()
    def _nats(self, tokens: Tokens, lengths: Lengths | None, apart: int) -> Tensor:
        kind = torch.promote_types(self.embedding.weight.dtype, torch.float32)
        nats = torch.zeros(tokens.shape, dtype=kind, device=tokens.device)
        for rows, places, features in self._in_turn(tokens, lengths, apart):
            found = cross_entropy_each(features, self.output_weight, self.output_bias, tokens[rows, places])
            nats[rows, places] = found.to(kind)
        return nats

    def _in_turn(self, tokens: Tokens, lengths: Lengths | None, apart: int) -> Iterator[Found]:
        """Every real position once, masked together with those `apart`, 2 × `apart`, … from it.

        A copy of a row for each of its turns; as many copies at a time as memory shall hold, no longer than needed.
        """
        real = _real(tokens, lengths)
        sizes, places = real.sum(1), torch.arange(tokens.shape[1], device=tokens.device)
        todo = real[:, :apart].nonzero()
        for copies in todo.split(max(1, POSITIONS // max(1, tokens.shape[1]))) if len(todo) else ():
            rows, turns = copies.unbind(1)
            here = sizes[rows]
            span = int(here.max())
            masked = (places[:span] % apart == turns.unsqueeze(1)) & real[rows, :span]
            given = tokens[rows, :span].masked_fill(masked, self.mask_id)
            features, _ = self.features(given, None, here if bool((here < span).any()) else None)
            copy, place = masked.nonzero().unbind(1)
            yield Found(rows[copy], place, features[masked])


class _Dense(nn.Module):
    """A last look before the vocabulary, as in BERT's head."""

    def __init__(self, config: StackConfig, width: int):
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), make_norm(config, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(x)))


def _real(tokens: Tokens, lengths: Lengths | None) -> Tensor:
    """True at real positions (batch, time)."""
    if lengths is None:
        return torch.ones_like(tokens, dtype=torch.bool)
    return torch.arange(tokens.shape[1], device=tokens.device) < lengths.to(tokens.device).unsqueeze(1)
