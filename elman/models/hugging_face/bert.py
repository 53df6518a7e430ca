"""BERT (Devlin et al., 2019) for masked language modelling: bidirectional attention, post-norm, dense head.

Token type embeddings are folded into the positions (a single text has type 0 only). Poolers and next-sentence heads are
ignored.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from elman.models.hugging_face.family import FAMILIES, Family, WeightMapping, linear
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
    buffers = r"embeddings\.position_ids|pooler\..*|cls\.seq_relationship\..*|cls\.predictions\.decoder\.bias"
    copies = "cls.predictions.decoder.weight"
    older = (
        ("LayerNorm.weight", "LayerNorm.gamma"),
        ("LayerNorm.bias", "LayerNorm.beta"),
        ("predictions.decoder.bias", "predictions.bias"),
    )

    def settings(self, reader: ConfigReader) -> dict[str, Any]:
        width, heads = reader.integer("hidden_size", 768), reader.integer("num_attention_heads", 12)
        attention: dict[str, Any] = {"num_heads": heads, "kv_heads": heads, "bias": True}
        attention["dropout"] = reader.number("attention_probs_dropout_prob", 0.1)
        feedforward = {
            "inner_size": reader.integer("intermediate_size", 3072),
            "activation": reader.choice("hidden_act", {"gelu": "gelu"}, "gelu"),  # the head uses it too
        }
        reader.require("position_embedding_type", "absolute")
        reader.require("is_decoder", False)
        reader.ignore("type_vocab_size", "classifier_dropout", "pooler_type")
        reader.ignore("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")
        return {
            "pattern": [{"two-way-attention": attention}, {"feedforward": feedforward}],
            "num_layers": 2 * reader.integer("num_hidden_layers", 12),
            "hidden_size": width,
            "positions": "learned",
            "max_positions": reader.integer("max_position_embeddings", 512),
            "embedding_norm": True,
            "norm": "post",
            "norm_epsilon": reader.number("layer_norm_eps", 1e-12),
            "residual": True,
            "tied_embeddings": reader.boolean("tie_word_embeddings", True),
            "output_bias": True,
            "head": "dense",
            "mask_id": reader.get("mask_token_id"),
            "dropout": reader.number("hidden_dropout_prob", 0.1),
            "output_dropout": 0.0,
            "locked_dropout": False,
        }

    def describe(self, model: Any) -> dict[str, Any]:
        config, attention, feedforward = model.config, model.stack.layers[0].layer, model.stack.layers[1].layer
        return {
            "vocab_size": model.embedding.num_embeddings,
            "hidden_size": attention.input_size,
            "num_hidden_layers": len(model.stack.layers) // 2,
            "num_attention_heads": attention.heads,
            "intermediate_size": feedforward.from_input.out_features,
            "hidden_act": "gelu",
            "max_position_embeddings": config.max_positions,
            "type_vocab_size": TYPES,
            "layer_norm_eps": config.norm_epsilon,
            "tie_word_embeddings": config.tied_embeddings,
            "mask_token_id": model.mask_id,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": attention.config.dropout,
        }

    def rows(self, model: Any) -> Iterator[WeightMapping]:
        known, words = model.vocab_size, model.embedding.num_embeddings
        bottom = "bert.embeddings"
        yield PaddedRows("embedding.weight", (f"{bottom}.word_embeddings.weight",), words=(words, words))
        places = (f"{bottom}.position_embeddings.weight", f"{bottom}.token_type_embeddings.weight")
        yield PositionsWithTokenTypes("stack.positions.table.weight", places)
        yield from linear("stack.bottom_norm", f"{bottom}.LayerNorm")
        for index in range(len(model.stack.layers) // 2):
            theirs = f"bert.encoder.layer.{index}"
            first, second = f"stack.layers.{2 * index}", f"stack.layers.{2 * index + 1}"
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
        if not model.config.tied_embeddings:  # then there are two biases, and the decoder's is used
            yield PaddedRows("output_bias", (f"{head}.decoder.bias",), words=(known, words), filling=NEVER)
            yield PaddedRows("output.weight", (f"{head}.decoder.weight",), words=(known, words))
