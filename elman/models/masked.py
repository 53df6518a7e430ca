"""Masked language model (Devlin et al., 2019): predicts masked tokens from both sides.

Its predictions do not chain into the probability of a text. It gives the pseudo-likelihood instead (Salazar et al.,
2020): each token's probability given all others. That is comparable between masked models only, because the right
context says much about a token.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import ClassVar, Literal, NoReturn

import torch
from pydantic import Field, NonNegativeInt, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from elman.errors import ConfigError
from elman.models.base import MODELS, masked_model_error
from elman.models.language_model import LanguageModel
from elman.models.stack import LayerSpec, TransformerConfig, make_norm
from elman.ops.cross_entropy import cross_entropy_each, cross_entropy_sum
from elman.shapes import Lengths, State, Token, Tokens

POSITIONS = 2**15  # maximum positions per forward pass of `losses`: bounds memory
BLOCK: list[LayerSpec] = [{"two-way-attention": {}}, {"feedforward": {}}]


class MaskedConfig(TransformerConfig):
    """Settings of a bidirectional stack and of masking."""

    both_sides: ClassVar[bool] = True

    type: Literal["masked"] = "masked"  # type: ignore[assignment]
    """Model type: a stack that predicts masked tokens from both sides."""
    pattern: list[LayerSpec] = Field([*BLOCK, *BLOCK])
    """Layers from bottom to top, as in a stack; bidirectional layers are allowed."""
    mask_share: float = Field(0.15, gt=0, le=1)
    """Share of tokens that are selected for prediction in training."""
    keep_share: float = Field(0.1, ge=0, le=1)
    """Share of the selected tokens that stay unmasked."""
    random_share: float = Field(0.1, ge=0, le=1)
    """Share of the selected tokens that are replaced by a random token instead of the mask."""
    mask_id: int | None = Field(None, ge=0)
    """Id of the mask token in the vocabulary; null adds an embedding for it."""
    frame: tuple[NonNegativeInt, NonNegativeInt] | None = None
    """Ids of the tokens before and after each text, as BERT's [CLS] and [SEP]: the model reads but never predicts them.
    null: a text ends in the end-of-text token, which is predicted."""
    head: Literal["none", "dense"] = "none"
    """Prediction head between stack and output projection: none, or dense with GELU and layer norm, as in BERT."""

    @model_validator(mode="after")
    def _shares(self) -> "MaskedConfig":
        if self.keep_share + self.random_share > 1:
            raise ValueError(
                f"keep_share and random_share are shares of the selected tokens, but {self.keep_share} + "
                f"{self.random_share} is more than 1"
            )
        return self


@MODELS.register("masked")
class Masked(LanguageModel):
    """Bidirectional stack of any layers, trained to predict masked tokens."""

    Config = MaskedConfig
    prediction: ClassVar = "masked"
    sites: ClassVar = {
        "embedding": "token embeddings of the text, before dropout (x)",
        "position": "position embedding added to each token, with model.positions (p)",
        "output.logits": "logits of the token at each position, before the softmax",
    }
    config: MaskedConfig

    def __init__(self, config: MaskedConfig, vocab_size: int):
        super().__init__(config, vocab_size)
        words, width = self.embedding.weight.shape
        self.mask_id = words if config.mask_id is None else config.mask_id
        if config.mask_id is None:
            self.embedding = nn.Embedding(words + 1, width)
            nn.init.normal_(self.embedding.weight, std=width**-0.5)
        for name, id in [("mask_id", config.mask_id), *(("frame", id) for id in config.frame or ())]:
            # on meta, the vocabulary is not known yet
            if id is not None and id >= words and not self.embedding.weight.is_meta:
                raise ConfigError(
                    f"model.{name} is {id}, but the vocabulary has the ids 0 to {words - 1}; leave it out if the model "
                    "has no such token"
                )
        self.head: nn.Module | None = None
        if config.head == "dense":
            width = self.stack.output_size
            parts = {"dense": nn.Linear(width, width), "gelu": nn.GELU(), "norm": make_norm(config, width)}
            self.head = nn.Sequential(OrderedDict(parts))

    def initial_state(self, batch: int) -> Tensor:
        """An empty state: chunks of text are independent."""
        return self.embedding.weight.new_zeros(batch, 0)

    def step(self, token: Token, state: State) -> NoReturn:
        raise masked_model_error()

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats of every target given all others, one masked position per forward pass.

        Their sum is the negative pseudo-log-likelihood. The text is `targets`; `inputs`, the same shifted by one, is
        unused.
        """
        return self._nats(targets, lengths), self.initial_state(len(targets))

    def quick_losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Approximate losses in few passes: masks as many tokens at once as training does, evenly spaced.

        Deterministic: every position is always masked together with the same others, so values are comparable during
        training.
        """
        return self._nats(targets, lengths, round(1 / self.config.mask_share)), self.initial_state(len(targets))

    def total_loss(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]:
        """Nats summed over masked tokens, times real positions over masked ones.

        Training divides by the number of real positions and so gets the mean over masked tokens. The text is `targets`;
        masks are drawn from torch's generator.
        """
        real = _real(targets, lengths)
        tokens, sizes, predicted = self._framed(targets, lengths)
        inputs, masked = self.hide(tokens, predicted)
        features, state = self.features(inputs, state, sizes)
        nats = cross_entropy_sum(features[masked], self.output_weight, self.output_bias, tokens[masked])
        return nats * (real.sum() / masked.sum().clamp(min=1)), state

    def hide(self, tokens: Tokens, real: Tensor) -> tuple[Tokens, Tensor]:
        """The text with some tokens masked, and where; at least one token is masked, so that the loss is defined."""
        config = self.config
        uniform = torch.rand(tokens.shape, device=tokens.device)
        masked = real & (uniform <= uniform.masked_fill(~real, 1.0).min().clamp(min=config.mask_share))
        treatment = torch.rand(tokens.shape, device=tokens.device)
        random = torch.randint_like(tokens, self.vocab_size)
        replacement = torch.where(treatment < config.keep_share + config.random_share, random, self.mask_id)
        replacement = torch.where(treatment < config.keep_share, tokens, replacement)
        return torch.where(masked, replacement, tokens), masked

    @torch.no_grad()
    def masked_logits(self, tokens: Tokens, lengths: Lengths | None = None) -> Tensor:
        """Logits (batch, time, vocabulary) of each position, masked in turn; zeros at what is not predicted."""
        logits = self.output_weight.new_zeros(*tokens.shape, self.vocab_size)
        for rows, places, features in self._in_turn(tokens, lengths):
            logits[rows, places] = self.logits(features).to(logits.dtype)
        return logits

    def features(self, tokens: Tokens, state: State | None, lengths: Lengths | None) -> tuple[Tensor, State]:
        """The input of the output projection; the state is always empty."""
        features, _ = super().features(tokens, None, lengths)
        return features if self.head is None else self.head(features), self.initial_state(len(tokens))

    @property
    def output_weight(self) -> Tensor:
        return super().output_weight[: self.vocab_size]  # an added mask is never predicted

    def _framed(self, tokens: Tokens, lengths: Lengths | None) -> tuple[Tokens, Lengths | None, Tensor]:
        """The sequence that the model reads, its lengths, and which of its positions are predicted.

        A frame adds two positions, also where a row has its end token already: that is then followed by padding.
        """
        real = _real(tokens, lengths)
        if self.config.frame is None:
            return tokens, lengths, real
        start, end = self.config.frame
        text, rows = real & (tokens != end), torch.arange(len(tokens), device=tokens.device)
        sizes = real.sum(1)
        closed = (sizes > 0) & ~text[rows, sizes - 1] if tokens.shape[1] else sizes > 0
        framed = F.pad(F.pad(tokens, (1, 0), value=start), (0, 1), value=end)
        framed[rows, sizes + 1] = end
        return framed, sizes + 2 - closed.long(), F.pad(text, (1, 1), value=False)

    @torch.no_grad()
    def _nats(self, tokens: Tokens, lengths: Lengths | None, apart: int | None = None) -> Tensor:
        dtype = torch.promote_types(self.embedding.weight.dtype, torch.float32)
        nats = torch.zeros(tokens.shape, dtype=dtype, device=tokens.device)
        for rows, places, features in self._in_turn(tokens, lengths, apart):
            found = cross_entropy_each(features, self.output_weight, self.output_bias, tokens[rows, places])
            nats[rows, places] = found.to(dtype)
        return nats

    def _in_turn(
        self, tokens: Tokens, lengths: Lengths | None, apart: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Masks every predicted position once, together with those at distances `apart`, 2 · `apart`, …, if given.

        Gives the rows and places of masked positions, and their features.
        Processes one copy of a row per offset, in batches bounded by memory and trimmed to their longest row.
        """
        framed, lengths, predicted = self._framed(tokens, lengths)
        sizes, time = _real(framed, lengths).sum(1), framed.shape[1]
        apart, places = apart or max(1, time), torch.arange(time, device=tokens.device)
        offsets_of = F.pad(predicted, (0, -time % apart)).view(len(tokens), -(-time // apart), apart)
        pairs = offsets_of.any(1).nonzero()  # (row, offset)
        for copies in pairs.split(max(1, POSITIONS // max(1, time))) if len(pairs) else ():
            rows, offsets = copies.unbind(1)
            here = sizes[rows]
            span = int(here.max())
            masked = (places[:span] % apart == offsets.unsqueeze(1)) & predicted[rows, :span]
            given = framed[rows, :span].masked_fill(masked, self.mask_id)
            features, _ = self.features(given, None, here if bool((here < span).any()) else None)
            copy, place = masked.nonzero().unbind(1)
            yield rows[copy], place - int(self.config.frame is not None), features[masked]


def _real(tokens: Tokens, lengths: Lengths | None) -> Tensor:
    """True at real positions (batch, time)."""
    if lengths is None:
        return torch.ones_like(tokens, dtype=torch.bool)
    return torch.arange(tokens.shape[1], device=tokens.device) < lengths.to(tokens.device).unsqueeze(1)
