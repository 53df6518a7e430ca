"""Settings of an encoder-decoder."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from elman.config import Config
from elman.layers import LAYERS, SequenceLayer
from elman.layers.cross_attention import CrossAttention
from elman.models.stack import LayerSpec, StackConfig
from elman.registry import Registry

ContextUse = Literal["state", "input", "output"]
ROW_DROPOUTS = {"dropout", "input_dropout", "output_dropout", "scheduled_sampling"}  # others drop per batch


class _DecoderLayers(Registry[SequenceLayer]):
    """All layers, plus those that need a source."""

    def __getitem__(self, name: str) -> type[SequenceLayer]:
        if name in self._items:
            return self._items[name]
        if name in LAYERS:
            return LAYERS[name]
        raise self.unknown(name, also=LAYERS)


DECODER_LAYERS = _DecoderLayers("layer")
DECODER_LAYERS.register(CrossAttention.name)(CrossAttention)


class EncoderConfig(StackConfig):
    """The encoder stack."""

    both_sides: ClassVar[bool] = True

    pattern: list[LayerSpec] = Field([{"bidirectional": {}}])
    """Layers from bottom to top, as in a stack; bidirectional layers are allowed."""


class DecoderConfig(StackConfig):
    """The decoder stack, and how it uses the source."""

    known: ClassVar[Registry[SequenceLayer]] = DECODER_LAYERS

    pattern: list[LayerSpec] = Field([{"lstm": {}}])
    """Layers from bottom to top, as in a stack, plus cross-attention: [attention, cross-attention, feedforward] is a
    Transformer block."""
    context: list[ContextUse] = Field(["state"])
    """How a summary of the source (its first and last position) is used: as initial state of recurrent layers, as part
    of every input, or in the output layer."""
    attention: CrossAttention.Config | None = CrossAttention.Config(projections=False, score="bilinear")
    """Cross-attention at the top of the decoder; null: none, or cross-attention in the pattern. Several heads need
    projections."""
    input_feeding: bool = False
    """Input feeding: feed each output vector into the next step (Luong et al., 2015). Trains step by step."""
    scheduled_sampling: float = Field(0.0, ge=0, le=1)
    """Scheduled sampling: share of training inputs that are sampled from the model instead of teacher forcing (Bengio
    et al., 2015). Trains step by step."""


class EncoderDecoderConfig(Config):
    """Sequence-to-sequence model."""

    type: Literal["encoder-decoder"] = "encoder-decoder"
    """Model type: encoder-decoder."""
    encoder: EncoderConfig = Field(default_factory=EncoderConfig)
    """Encoder of the source."""
    decoder: DecoderConfig = Field(default_factory=DecoderConfig)
    """Decoder of the target."""
    shared_embeddings: bool = False
    """Share embeddings between source and target; needs one vocabulary and equal widths."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing: share of the target distribution that is spread evenly over the vocabulary."""
    agreement: float = Field(0.0, ge=0)
    """R-Drop: weight of the divergence between two passes with different dropout (Liang et al., 2021; 5 there). Doubles
    the cost of an update."""

    @model_validator(mode="after")
    def _check(self) -> "EncoderDecoderConfig":
        decoder = self.decoder
        inside = any(name == CrossAttention.name for name, _ in decoder.layers())
        if not (decoder.context or decoder.attention or inside):
            raise ValueError(
                "the decoder has no access to the source; set decoder.context to state, input or output, "
                "or set decoder.attention, or put cross-attention into decoder.pattern"
            )
        if self.agreement and not any(_row_dropouts(self.plain())):
            raise ValueError(
                "agreement (R-Drop) compares two passes with different dropout; set encoder.dropout or decoder.dropout "
                "(weight_dropout and embedding_dropout are the same in both passes), or agreement: 0"
            )
        return self


def _row_dropouts(settings: Any) -> Iterator[Any]:
    """All dropout rates that are applied per row, wherever they are set."""
    for key, value in settings.items() if isinstance(settings, dict) else enumerate(settings):
        if isinstance(value, dict | list):
            yield from _row_dropouts(value)
        elif key in ROW_DROPOUTS:
            yield value
