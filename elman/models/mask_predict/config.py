"""Settings of a mask-predict model: an encoder-decoder that predicts all target positions in parallel."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from elman.errors import ConfigError
from elman.layers.cross_attention import CrossAttention
from elman.models.encoder_decoder.config import ContextUse, DecoderConfig, EncoderConfig, EncoderDecoderConfig
from elman.models.stack import LayerSpec, TransformerConfig


class ParallelEncoderConfig(TransformerConfig, EncoderConfig):
    """The encoder; by default a Transformer."""

    pattern: list[LayerSpec] = Field([{"two-way-attention": {}}, {"feedforward": {}}])
    """Layers from bottom to top, as in a stack; bidirectional layers are allowed."""
    num_layers: int = Field(6, ge=0)
    """Number of layers: the pattern is repeated to this length; 0 uses it once."""


class ParallelDecoderConfig(TransformerConfig, DecoderConfig):
    """The bidirectional decoder."""

    both_sides: ClassVar[bool] = True

    pattern: list[LayerSpec] = Field([{"two-way-attention": {}}, {"cross-attention": {}}, {"feedforward": {}}])
    """Layers from bottom to top, as in a stack; cross-attention reads from the source; bidirectional layers are
    allowed."""
    num_layers: int = Field(9, ge=0)
    """Number of layers: the pattern is repeated to this length; 0 uses it once."""
    context: list[ContextUse] = Field([])
    """How a summary of the source is used: as initial state of recurrent layers, as part of every input, or in the
    output layer."""
    attention: CrossAttention.Config | None = None
    """Cross-attention at the top of the decoder; null if cross-attention is in the pattern."""
    input_feeding: Literal[False] = False
    """No effect: steps run in parallel."""
    scheduled_sampling: float = Field(0.0, ge=0, le=0)
    """No effect: steps run in parallel."""


class MaskPredictConfig(EncoderDecoderConfig):
    """Sequence-to-sequence model that predicts all target positions in parallel."""

    type: Literal["mask-predict"] = "mask-predict"  # type: ignore[assignment]
    """Model type: encoder-decoder with parallel iterative decoding (mask-predict)."""
    encoder: ParallelEncoderConfig = Field(default_factory=ParallelEncoderConfig)
    """Encoder of the source."""
    decoder: ParallelDecoderConfig = Field(default_factory=ParallelDecoderConfig)
    """Decoder of the target."""
    agreement: float = Field(0.0, ge=0, le=0)
    """No effect: two passes would mask different tokens."""
    length_range: int = Field(50, ge=1)
    """Maximum difference between the predicted target length and the source length."""
    length_weight: float = Field(1.0, gt=0)
    """Weight of the length loss relative to a token's loss."""


PARALLEL = {"attention": "two-way-attention", **{name: name for name in ("cross-attention", "feedforward", "swiglu")}}


def parallel_settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """From the settings of an encoder-decoder: causal attention in its decoder becomes two-way attention."""
    if model["type"] == "mask-predict":
        return dict(model)
    pattern = [next(iter(entry.items())) for entry in model["decoder"]["pattern"]]
    other = [name for name, _ in pattern if name not in PARALLEL]
    if other or model["decoder"]["context"] or model["decoder"]["attention"]:
        what = f"its decoder has {other[0]}" if other else "its decoder gets the source through its state"
        raise ConfigError(f"start_from: {what}; only a Transformer's weights fit a model that writes all words at once")
    two_way = [
        {PARALLEL[name]: {key: value for key, value in settings.items() if (name, key) != ("attention", "context")}}
        for name, settings in pattern
    ]
    return {**model, "type": "mask-predict", "decoder": {**model["decoder"], "pattern": two_way}}
