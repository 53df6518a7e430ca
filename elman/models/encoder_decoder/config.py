"""Settings of encoder-decoders: decoding token by token, or all target positions in parallel (mask-predict)."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from elman.config import Config
from elman.errors import ConfigError
from elman.layers import LAYERS, SequenceLayer
from elman.layers.cross_attention import CrossAttention
from elman.models.stack import LayerSpec, StackConfig, TransformerConfig
from elman.registry import Registry

ContextUse = Literal["state", "input", "output"]
ROW_DROPOUTS = {"dropout", "input_dropout", "output_dropout", "scheduled_sampling"}  # others drop per batch
PARALLEL = {"attention": "two-way-attention", **{name: name for name in ("cross-attention", "feedforward", "swiglu")}}


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
