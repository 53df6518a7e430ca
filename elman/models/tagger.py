"""Sequence tagger: word and character embeddings, a bidirectional stack, and a CRF or softmax output (Lample et al.,
2016).

A batch has the fields of `batches/tagging`: words, characters, word_lengths and, for the loss, tags.
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from elman.batches import Examples, Ragged
from elman.batches.tagging import UNKNOWN
from elman.config import named
from elman.corpus.tags import LegalTransitions
from elman.errors import nan_error
from elman.layers import LAYERS
from elman.layers.base import at_least_float32
from elman.models.base import TAGGERS
from elman.models.stack import LayerSpec, Stack, StackConfig
from elman.ops.crf import Chain, best_path, log_partition, marginals, path_score
from elman.ops.dropout import embedded
from elman.ops.taps import listening, scope, tap
from elman.shapes import Lengths, Sequence, Tokens

GROUPS = 4  # length groups of distinct words, each padded on its own


class TaggerConfig(StackConfig):
    """Settings of the tagger: stack, character encoder and output."""

    both_sides: ClassVar[bool] = True

    type: Literal["tagger"] = "tagger"  # type: ignore[assignment]
    """Model type: a stack that tags every word."""
    pattern: list[LayerSpec] = Field([{"bidirectional": {}}])
    """Layers from bottom to top, as in a stack; bidirectional layers are allowed."""
    hidden_size: int = Field(200, ge=1)
    """Width of every layer that does not set its own; of each direction in bidirectional layers."""
    embedding_size: int = Field(100, ge=0)
    """Width of the word embeddings; 0: hidden_size."""
    tied_embeddings: Literal[False] = False
    """No effect: tags have no embeddings to tie."""
    dropout: float = Field(0.33, ge=0, lt=1)
    """Dropout between layers; with residual connections, on each layer's output before it is added."""
    word_dropout: float = Field(0.1, ge=0, lt=1)
    """Word dropout: share of words replaced by the unknown word in training, which trains its embedding and the
    characters."""
    characters: LayerSpec | None = Field({"bidirectional": {"layer": "lstm", "hidden_size": 50}})
    """Layer of the character encoder: bidirectional, lstm, convolution, ...; null: no characters."""
    character_size: int = Field(50, ge=1)
    """Width of the character embeddings, and of the character encoder if it does not set its own."""
    character_pooling: Literal["ends", "max"] = "ends"
    """Pooling over a word's characters: the output at the last one (and the first, for bidirectional layers), or the
    maximum of each unit, as is usual with convolution."""
    head: Literal["crf", "softmax"] = "crf"
    """Output: conditional random field (CRF) over the tag sequence, or independent softmax per word."""

    @field_validator("characters", mode="before")
    @classmethod
    def _reader(cls, layer: Any) -> LayerSpec | None:
        return None if layer is None else cls._entry(layer)


@TAGGERS.register("tagger")
class Tagger(nn.Module):
    """Word and character embeddings, a stack of layers, and one tag for each word."""

    Config = TaggerConfig
    no_decay: ClassVar = ("between",)
    sites: ClassVar = {
        "embedding": "embedding of each word and its characters, before dropout (x)",
        "output.scores": "emission scores of every tag for each word, before the CRF",
    }

    illegal_start: Tensor | None
    illegal_end: Tensor | None
    illegal_between: Tensor | None

    def __init__(
        self,
        config: TaggerConfig,
        vocab_size: int,
        character_count: int,
        tag_count: int,
        legal: LegalTransitions | None = None,
    ):
        super().__init__()
        self.config, self.tag_count = config, tag_count
        width = config.embedding_size or config.hidden_size
        self.embedding = nn.Embedding(vocab_size, width)
        self.scale = config.embedding_scale or width**0.5
        self.characters = None if config.characters is None else CharacterEncoder(config, character_count)
        self.stack = Stack(config, width + (self.characters.output_size if self.characters else 0))
        self.output = nn.Linear(self.stack.output_size, tag_count, bias=config.output_bias)
        if config.head == "crf":
            self.start, self.end = nn.Parameter(torch.zeros(tag_count)), nn.Parameter(torch.zeros(tag_count))
            self.between = nn.Parameter(torch.zeros(tag_count, tag_count))
        for name in LegalTransitions._fields:
            table = None if legal is None else torch.from_numpy(~getattr(legal, name))
            self.register_buffer(f"illegal_{name}", table, persistent=False)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    def forward(self, batch: Examples) -> Sequence:
        """Emission scores (batch, time, tags) of every word."""
        config, (words, lengths) = self.config, batch.ragged("words")
        if self.training and config.word_dropout:
            words = words.masked_fill(torch.rand(words.shape, device=words.device) < config.word_dropout, UNKNOWN)
        x = embedded(words, self.embedding.weight, config.embedding_dropout, self.training) * self.scale
        if self.characters is not None:
            x = torch.cat([x, self.characters(batch)], -1)
        x = tap("embedding", x)
        x, _ = self.stack(self.stack.drop_input(x), None, lengths)
        return tap("output.scores", self.output(self.stack.drop_output(x)))

    def batch_loss(self, batch: Examples, state: None = None) -> tuple[Tensor, None]:
        """Sum of nats of the true tags. Illegal transitions are allowed here, because training data may contain
        them."""
        scores, tags = self(batch), batch.ragged("tags")
        if self.config.head == "softmax":
            real = tags.mask()
            return F.cross_entropy(at_least_float32(scores[real]), tags.values[real], reduction="sum"), None
        chain = self.chain()
        total = log_partition(scores, chain, tags.lengths)
        return (total - path_score(scores, chain, tags.values, tags.lengths)).sum(), None

    @torch.no_grad()
    def best_tags(self, batch: Examples) -> Ragged:
        """The best legal tag sequence of each sentence (Viterbi); an illegal one only if no legal one exists."""
        scores, lengths = self(batch), batch.ragged("words").lengths
        best = best_path(scores, self.chain(legal=True), lengths)
        if best.score.isnan().any():
            raise nan_error()
        if (lost := best.score == -torch.inf).any():
            free = best_path(scores, self.chain(), lengths)
            return Ragged(torch.where(lost[:, None], free.tags, best.tags), lengths)
        return Ragged(best.tags, lengths)

    @torch.no_grad()
    def marginals(self, batch: Examples) -> Tensor:
        """Marginal probability (batch, time, tags) of each tag of each word among legal sequences; 0 at padding."""
        scores, lengths = self(batch), batch.ragged("words").lengths
        chain = self.chain(legal=True)
        lost = log_partition(scores, chain, lengths) == -torch.inf
        found = marginals(scores, chain, lengths)
        if lost.any():
            found = torch.where(lost[:, None, None], marginals(scores, self.chain(), lengths), found)
        return found

    def chain(self, legal: bool = False) -> Chain:
        """Transition scores between tags: those of the CRF, or zeros with a softmax output; -inf for illegal ones."""
        if self.config.head == "crf":
            chain = Chain(self.start, self.end, self.between)
        else:
            count, new = self.tag_count, self.output.weight.new_zeros
            chain = Chain(new(count), new(count), new(count, count))
        if not legal:
            return chain
        illegal = self.illegal_start, self.illegal_end, self.illegal_between
        both = zip(chain, illegal, strict=True)
        return Chain(*(part if mask is None else part.masked_fill(mask, -torch.inf) for part, mask in both))


class CharacterEncoder(nn.Module):
    """Character encoder: one vector per word from its characters."""

    def __init__(self, config: TaggerConfig, count: int):
        super().__init__()
        assert config.characters is not None
        self.kind, settings = named(LAYERS, config.characters)
        if "hidden_size" in type(settings).model_fields and not settings.hidden_size:  # type: ignore[attr-defined]
            settings = settings.model_copy(update={"hidden_size": config.character_size})
        self.embedding = nn.Embedding(count, config.character_size)
        cls: Any = LAYERS[self.kind]
        self.layer = cls(settings, config.character_size)
        self.pooling = config.character_pooling
        both = self.pooling == "ends" and not self.layer.causal
        self.output_size = self.layer.output_size * (2 if both else 1)
        nn.init.normal_(self.embedding.weight, std=config.character_size**-0.5)

    def forward(self, batch: Examples) -> Sequence:
        """A vector for each word (batch, time, width); 0 at padding."""
        characters, per_word = batch.ragged("characters"), batch.ragged("word_lengths")
        real = per_word.mask()
        vectors = self.embedding.weight.new_zeros(*real.shape, self.output_size)
        if not real.any():
            return vectors
        spelled, lengths, which = distinct_words(characters, per_word)
        with scope(f"characters.{self.kind}"):
            groups = 1 if listening() else GROUPS  # a recording covers one batch
            parts = zip(spelled.chunk(groups), lengths.chunk(groups), strict=True)
            found = torch.cat([self._read(part[:, : int(sizes.max())], sizes) for part, sizes in parts])
        return vectors.to(found.dtype).masked_scatter(real.unsqueeze(2), found[which])

    def _read(self, spelled: Tokens, lengths: Lengths) -> Tensor:
        outputs, _ = self.layer(self.embedding(spelled), None, lengths)
        if self.pooling == "max":
            return outputs.masked_fill(~Ragged(spelled, lengths).mask().unsqueeze(2), -torch.inf).amax(1)
        last = outputs[torch.arange(len(outputs), device=outputs.device), lengths - 1]
        return last if self.layer.causal else torch.cat([outputs[:, 0], last], -1)


def distinct_words(characters: Ragged, per_word: Ragged) -> tuple[Tensor, Tensor, Tensor]:
    """The characters of each distinct word of the batch (words, longest), shortest first; their lengths; and for each
    word of the batch, row by row, the index of its distinct word."""
    flat, lengths = characters.values[characters.mask()], per_word.values[per_word.mask()]
    shortest, longest, total = torch.stack([lengths.min(), lengths.max(), lengths.sum()]).tolist()
    if shortest < 1 or total != len(flat):  # of damaged data: words of any length, and characters of other memory
        raise ValueError(f"words of {shortest} to {longest} characters, {total} in all, have {len(flat)} characters")
    starts = lengths.cumsum(0) - lengths
    places = torch.arange(longest, device=flat.device)
    real = places < lengths.unsqueeze(1)
    spelled = flat[(starts.unsqueeze(1) + places).masked_fill(~real, 0)].masked_fill(~real, 0)
    once, which = torch.cat([lengths.unsqueeze(1), spelled], 1).unique(dim=0, return_inverse=True)
    return once[:, 1:], once[:, 0], which
