"""BERT (Devlin et al., 2019) for masked prediction: both sides in sight, layer norm after each layer, a dense head.

Their token types, of which a text alone has only the first, are folded into the positions; their poolers and heads for
pairs of sentences have no part in the prediction of words.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from elman.models.hugging_face.config_reader import Given
from elman.models.hugging_face.family import FAMILIES, Family
from elman.models.hugging_face.weight_map import Row, linear

TYPES = 2  # token types that an exported folder has, all of them zero
NEVER = -1e4  # the bias of an added mask, which is no answer here


@dataclass(frozen=True)
class WithTypes(Row):
    """The positions and the vector of the first token type, which stands beside all of them."""

    def join(self, read: Callable[[str], Tensor]) -> Tensor:
        places, types = map(read, self.theirs)
        return places + types[:1]

    def split(self, weight: Tensor) -> dict[str, Tensor]:
        places, types = self.theirs
        return {places: weight, types: weight.new_zeros(TYPES, weight.shape[1])}


@dataclass(frozen=True)
class Padded(Row):
    """Something for each word, where one side may have one word more: a mask that the other has not."""

    words: tuple[int, int] = (0, 0)  # ours, theirs
    filling: float = 0.0  # of what they have more

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
    """BERT and what has its shape, for masked prediction."""

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

    def settings(self, given: Given) -> dict[str, Any]:
        width, heads = given.whole("hidden_size", 768), given.whole("num_attention_heads", 12)
        attention: dict[str, Any] = {"num_heads": heads, "kv_heads": heads, "bias": True}
        attention["dropout"] = given.number("attention_probs_dropout_prob", 0.1)
        feedforward = {
            "inner_size": given.whole("intermediate_size", 3072),
            "activation": given.choice("hidden_act", {"gelu": "gelu"}, "gelu"),  # the head has the same, and only it
        }
        given.must("position_embedding_type", "absolute")
        given.must("is_decoder", False)
        given.ignore("type_vocab_size", "classifier_dropout", "pooler_type")
        given.ignore("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")
        return {
            "pattern": [{"two-way-attention": attention}, {"feedforward": feedforward}],
            "num_layers": 2 * given.whole("num_hidden_layers", 12),
            "hidden_size": width,
            "positions": "learned",
            "max_positions": given.whole("max_position_embeddings", 512),
            "embedding_norm": True,
            "norm": "post",
            "norm_epsilon": given.number("layer_norm_eps", 1e-12),
            "residual": True,
            "tied_embeddings": given.flag("tie_word_embeddings", True),
            "output_bias": True,
            "head": "dense",
            "mask_id": given.take("mask_token_id"),
            "dropout": given.number("hidden_dropout_prob", 0.1),
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

    def rows(self, model: Any) -> Iterator[Row]:
        known, words = model.vocab_size, model.embedding.num_embeddings
        bottom = "bert.embeddings"
        yield Padded("embedding.weight", (f"{bottom}.word_embeddings.weight",), words=(words, words))
        places = (f"{bottom}.position_embeddings.weight", f"{bottom}.token_type_embeddings.weight")
        yield WithTypes("stack.positions.table.weight", places)
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
        yield Padded("output_bias", (f"{head}.bias",), words=(known, words), filling=NEVER)
        if not model.config.tied_embeddings:  # then neither are their two biases, and the decoder's is the one used
            yield Padded("output_bias", (f"{head}.decoder.bias",), words=(known, words), filling=NEVER)
            yield Padded("output.weight", (f"{head}.decoder.weight",), words=(known, words))
