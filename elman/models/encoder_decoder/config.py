"""The settings of an encoder-decoder: two stacks, and the ways from one to the other."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from elman.config import Config
from elman.layers import LAYERS, SequenceLayer
from elman.layers.cross_attention import CrossAttention
from elman.models.stack import Entry, StackConfig
from elman.registry import Registry

Way = Literal["state", "input", "output"]
BY_ROW = {"dropout", "input_dropout", "output_dropout", "scheduled_sampling"}  # other dice fall for a whole batch


class _DecoderLayers(Registry[SequenceLayer]):
    """All layers, and those that need a source."""

    def __getitem__(self, name: str) -> type[SequenceLayer]:
        if name in self._items:
            return self._items[name]
        if name in LAYERS:
            return LAYERS[name]
        raise self.unknown(name, also=LAYERS)


DECODER_LAYERS = _DecoderLayers("layer")
DECODER_LAYERS.register(CrossAttention.name)(CrossAttention)


class EncoderConfig(StackConfig):
    """The stack that reads the source."""

    both_sides: ClassVar[bool] = True

    pattern: list[Entry] = Field(default_factory=lambda: list[Entry]([{"bidirectional": {}}]))
    """Layers from bottom to top, as in a stack; those that see both sides may be among them."""


class DecoderConfig(StackConfig):
    """The stack that writes the target, and what it asks of the source."""

    known: ClassVar[Registry[SequenceLayer]] = DECODER_LAYERS

    pattern: list[Entry] = Field(default_factory=lambda: list[Entry]([{"lstm": {}}]))
    """Layers from bottom to top, as in a stack; cross-attention reads from the source:
    [attention, cross-attention, feedforward] is a Transformer's block."""
    context: list[Way] = Field(default_factory=lambda: list[Way](["state"]))
    """Ways that a summary of the source (its first and last position) goes: into the first state of the decoder, into
    the input of every step, into the output layer; any of them, or none."""
    attention: CrossAttention.Config | None = Field(
        default_factory=lambda: CrossAttention.Config(projections=False, score="bilinear")
    )
    """How the top of the decoder looks at the source before each word; null for no look, or where cross-attention
    stands in the pattern. Several heads need projections."""
    input_feeding: bool = False
    """Give each step what the output layer made of the last one (Luong et al., 2015). Trains one step after another."""
    scheduled_sampling: float = Field(0.0, ge=0, le=1)
    """Share of the words given in training that the model draws itself instead of taking those of the target (Bengio et
    al., 2015). Trains one step after another."""


class EncoderDecoderConfig(Config):
    """Any sequence to any sequence."""

    type: Literal["encoder-decoder"] = "encoder-decoder"
    """Kind of model: one stack reads a source, another writes what it makes of it."""
    encoder: EncoderConfig = Field(default_factory=EncoderConfig)
    """What reads the source."""
    decoder: DecoderConfig = Field(default_factory=DecoderConfig)
    """What writes the target."""
    shared_embeddings: bool = False
    """One table of word vectors for source and target; needs one vocabulary and one width."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the certainty that training takes from the right word and spreads over all."""
    agreement: float = Field(0.0, ge=0)
    """How much training asks that two readings of a pair with different dropout expect the same words (R-Drop, Liang et
    al., 2021; 5 there). Each update takes twice as long."""

    @model_validator(mode="after")
    def _the_source_is_seen(self) -> "EncoderDecoderConfig":
        decoder = self.decoder
        inside = any(name == CrossAttention.name for name, _ in decoder.layers())
        if not (decoder.context or decoder.attention or inside):
            raise ValueError(
                "the decoder sees nothing of the source; give decoder.context one of state, input, output, "
                "or set decoder.attention, or put cross-attention into decoder.pattern"
            )
        return self

    @model_validator(mode="after")
    def _two_readings_differ(self) -> "EncoderDecoderConfig":
        if self.agreement and not any(_shares(self.plain())):
            raise ValueError(
                "agreement is between two readings with different dropout, and without any they are the same; give "
                "encoder.dropout or decoder.dropout (weight_dropout and embedding_dropout are one for both), or set "
                "agreement: 0"
            )
        return self


def _shares(settings: Any) -> Iterator[Any]:
    """What rows of a batch lose each by its own dice, wherever that is set."""
    for key, value in settings.items() if isinstance(settings, dict) else enumerate(settings):
        if isinstance(value, dict | list):
            yield from _shares(value)
        elif key in BY_ROW:
            yield value
