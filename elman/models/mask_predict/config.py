"""The settings of a mask-predict model: those of an encoder-decoder that fills all places of the target at once."""

from typing import ClassVar, Literal

from pydantic import Field

from elman.layers.cross_attention import CrossAttention
from elman.models.encoder_decoder.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, Way
from elman.models.stack import Entry


class ParallelEncoderConfig(EncoderConfig):
    """The stack that reads the source: a Transformer's, where nothing else is asked."""

    pattern: list[Entry] = Field(default_factory=lambda: list[Entry]([{"two-way-attention": {}}, {"feedforward": {}}]))
    """Layers from bottom to top, as in a stack; those that see both sides may be among them."""
    num_layers: int = Field(6, ge=0)
    """How many layers: the pattern is repeated until there are that many; 0 takes the pattern once."""
    positions: Literal["none", "learned", "sinusoidal"] = "learned"
    """What is added to the word vectors to tell their place."""
    residual: bool = True
    """Add each layer's input to its output."""
    norm: Literal["none", "pre", "post"] = "pre"
    """Norm before each layer (and once at the top), after it, or not at all."""


class ParallelDecoderConfig(DecoderConfig):
    """The stack that fills the places of the target, with all of them in sight."""

    both_sides: ClassVar[bool] = True

    pattern: list[Entry] = Field(
        default_factory=lambda: list[Entry]([{"two-way-attention": {}}, {"cross-attention": {}}, {"feedforward": {}}])
    )
    """Layers from bottom to top, as in a stack; cross-attention reads from the source, and those that see both sides
    may be among them."""
    num_layers: int = Field(9, ge=0)
    """How many layers: the pattern is repeated until there are that many; 0 takes the pattern once."""
    positions: Literal["none", "learned", "sinusoidal"] = "learned"
    """What is added to the word vectors to tell their place; without it, hidden words are all alike to attention."""
    residual: bool = True
    """Add each layer's input to its output."""
    norm: Literal["none", "pre", "post"] = "pre"
    """Norm before each layer (and once at the top), after it, or not at all."""
    context: list[Way] = Field(default_factory=list)
    """Ways that a summary of the source goes: into the first state of recurrent layers, into every input, into the
    output layer; any of them, or none."""
    attention: CrossAttention.Config | None = None
    """How the top of the decoder looks at the source; null where cross-attention stands in the pattern."""
    input_feeding: Literal[False] = False
    """No step comes before another here: there is nothing to feed."""
    scheduled_sampling: float = Field(0.0, ge=0, le=0)
    """No step comes before another here: there is nothing to sample."""


class MaskPredictConfig(EncoderDecoderConfig):
    """Any sequence to any sequence, all places of the target at once."""

    type: Literal["mask-predict"] = "mask-predict"  # type: ignore[assignment]
    """Kind of model: one stack reads a source, another fills all places of the target at once, again and again."""
    encoder: ParallelEncoderConfig = Field(default_factory=ParallelEncoderConfig)
    """What reads the source."""
    decoder: ParallelDecoderConfig = Field(default_factory=ParallelDecoderConfig)
    """What fills the target."""
    agreement: float = Field(0.0, ge=0, le=0)
    """Two readings would hide different words: there is nothing to agree about."""
    length_range: int = Field(50, ge=1)
    """How much longer or shorter than its source a target can be predicted to be."""
    length_weight: float = Field(1.0, gt=0)
    """What the nats of the length count in training, those of a word being 1."""
