"""BERT (Devlin et al., 2019) for masked language modelling: bidirectional attention, post-norm, dense head.

Token type embeddings are folded into the positions (a single text has type 0 only). Poolers and next-sentence heads are
ignored.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from elman.models.hugging_face.family import FAMILIES, Family, Key, WeightMapping, linear
from elman.models.hugging_face.folder import ConfigReader

TYPES = 2  # token types of an exported folder, with zero embeddings
NEVER = -1e4  # output bias of an added mask token


@dataclass(frozen=True)
class PositionsWithTokenTypes(WeightMapping):
    """Position embeddings, plus the embedding of token type 0, which is added at every position."""

    def join(self, read: Callable[[str], Tensor]) -> Tensor:
        places, types = map(read, self.theirs)
        return places + types[:1]

    def split(self, weight: Tensor) -> dict[str, Tensor]:
        places, types = self.theirs
        return {places: weight, types: weight.new_zeros(TYPES, weight.shape[1])}


@dataclass(frozen=True)
class PaddedRows(WeightMapping):
    """A tensor with a row per token, where one side may have one token more (the mask)."""

    words: tuple[int, int] = (0, 0)  # our and their number of tokens
    filling: float = 0.0  # value of their additional row

    def join(self, read: Callable[[str], Tensor]) -> Tensor:
        return _padded(super().join(read), self.words[0], 0.0)

    def split(self, weight: Tensor) -> dict[str, Tensor]:
        return super().split(_padded(weight, self.words[1], self.filling))


def _padded(weight: Tensor, rows: int, filling: float) -> Tensor:
    padded = weight.new_full((max(rows, len(weight)), *weight.shape[1:]), filling)
    padded[: len(weight)] = weight
    return padded


@FAMILIES.register("bert")
class Bert(Family):
    """BERT and compatible models, for masked language modelling."""

    architecture = "BertForMaskedLM"
    loader = "AutoModelForMaskedLM"
    model = "masked"
    prefix = "bert."
    block = ("two-way-attention", "feedforward")
    buffers = r"embeddings\.position_ids|pooler\..*|cls\.seq_relationship\..*|cls\.predictions\.bias"
    tied: ClassVar = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    older = (
        ("LayerNorm.weight", "LayerNorm.gamma"),
        ("LayerNorm.bias", "LayerNorm.beta"),
        ("predictions.decoder.bias", "predictions.bias"),
    )

    keys = (
        Key("hidden_size", "hidden_size", 768),
        Key("num_hidden_layers", "blocks", 12),
        Key("num_attention_heads", "0.num_heads", 12),
        Key("intermediate_size", "1.inner_size", 3072),
        Key("hidden_act", "1.activation", "gelu", {"gelu": "gelu"}),  # the head uses it too
        Key("max_position_embeddings", "max_positions", 512),
        Key("layer_norm_eps", "norm_epsilon", 1e-12),
        Key("tie_word_embeddings", "tied_embeddings", True),
        Key("hidden_dropout_prob", "dropout", 0.1),
        Key("attention_probs_dropout_prob", "0.dropout", 0.1),
    )
    fixed: ClassVar = {
        **{"positions": "learned", "embedding_norm": True, "norm": "post", "0.bias": True},
        **{"output_bias": True, "head": "dense", "output_dropout": 0.0, "locked_dropout": False},
    }

    def check(self, reader: ConfigReader, found: dict[str, Any]) -> dict[str, Any]:
        reader.require("position_embedding_type", "absolute")
        reader.require("is_decoder", False)
        reader.ignore("type_vocab_size", "classifier_dropout", "pooler_type")
        reader.ignore("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")
        return {"0.kv_heads": found["0.num_heads"], "mask_id": reader.get("mask_token_id")}

    def describe_rest(self, model: Any, found: dict[str, Any]) -> dict[str, Any]:
        words = model.embedding.num_embeddings
        return {"vocab_size": words, "type_vocab_size": TYPES, "mask_token_id": model.mask_id}

    def body(self, model: Any) -> Iterator[WeightMapping]:
        known, words = model.vocab_size, model.embedding.num_embeddings
        bottom = "bert.embeddings"
        yield PaddedRows("embedding.weight", (f"{bottom}.word_embeddings.weight",), words=(words, words))
        places = (f"{bottom}.position_embeddings.weight", f"{bottom}.token_type_embeddings.weight")
        yield PositionsWithTokenTypes("stack.positions.table.weight", places)
        yield from linear("stack.bottom_norm", f"{bottom}.LayerNorm")
        for index, first, second in self.blocks(model):
            theirs = f"bert.encoder.layer.{index}"
            parts = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
            yield from linear(f"{first}.layer.from_input", *parts)
            yield from linear(f"{first}.layer.to_output", f"{theirs}.attention.output.dense")
            yield from linear(f"{first}.norm", f"{theirs}.attention.output.LayerNorm")
            yield from linear(f"{second}.layer.from_input", f"{theirs}.intermediate.dense")
            yield from linear(f"{second}.layer.to_output", f"{theirs}.output.dense")
            yield from linear(f"{second}.norm", f"{theirs}.output.LayerNorm")
        head = "cls.predictions"
        yield from linear("head.dense", f"{head}.transform.dense")
        yield from linear("head.norm", f"{head}.transform.LayerNorm")
        yield PaddedRows("output_bias", (f"{head}.bias",), words=(known, words), filling=NEVER)

    def untied_head(self, model: Any) -> Iterator[WeightMapping]:
        """Of the two biases, the decoder's is used."""
        words, decoder = (model.vocab_size, model.embedding.num_embeddings), "cls.predictions.decoder"
        yield PaddedRows("output_bias", (f"{decoder}.bias",), words=words, filling=NEVER)
        yield PaddedRows("output.weight", (f"{decoder}.weight",), words=words)
