"""GPT-2 (Radford et al., 2019): learned positions, attention and feed-forward with biases, pre-norm."""

from collections.abc import Iterator
from typing import Any

from elman.models.hugging_face.family import FAMILIES, Family, WeightMapping, linear
from elman.models.hugging_face.folder import ConfigReader

ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
    "tanh": "tanh",
}
"""Their names and ours; on export, the first one for ours is written."""


def their_activation(ours: str) -> str:
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)


@FAMILIES.register("gpt2")
class GPT2(Family):
    """GPT-2 and compatible models."""

    architecture = "GPT2LMHeadModel"
    prefix = "transformer."
    block = ("attention", "feedforward")
    buffers = r"h\.\d+\.attn\.(bias|masked_bias)"

    def settings(self, reader: ConfigReader) -> dict[str, Any]:
        width, heads = reader.integer("n_embd", 768), reader.integer("n_head", 12)
        places = reader.integer("n_positions", 1024)
        attention: dict[str, Any] = {"num_heads": heads, "kv_heads": heads, "context": places, "bias": True}
        attention["dropout"] = reader.number("attn_pdrop", 0.1)
        feedforward = {
            "inner_size": reader.integer("n_inner", 4 * width),
            "activation": reader.choice("activation_function", ACTIVATIONS, "gelu_new"),
        }
        reader.require("scale_attn_weights", True)
        reader.require("scale_attn_by_inverse_layer_idx", False)
        reader.require("n_ctx", places)
        reader.ignore("reorder_and_upcast_attn")  # affects precision below float32 only
        reader.ignore("summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout")
        reader.ignore("summary_proj_to_labels")
        return {
            "pattern": [{"attention": attention}, {"feedforward": feedforward}],
            "num_layers": 2 * reader.integer("n_layer", 12),
            "hidden_size": width,
            "positions": "learned",
            "max_positions": places,
            "norm": "pre",
            "norm_epsilon": reader.number("layer_norm_epsilon", 1e-5),
            "residual": True,
            "tied_embeddings": reader.boolean("tie_word_embeddings", True),
            "output_bias": False,
            "dropout": reader.number("resid_pdrop", 0.1),
            "input_dropout": reader.number("embd_pdrop", 0.1),
            "output_dropout": 0.0,
            "locked_dropout": False,
        }

    def describe(self, model: Any) -> dict[str, Any]:
        config, attention, feedforward = model.config, model.stack.layers[0].layer, model.stack.layers[1].layer
        return {
            "n_embd": attention.input_size,
            "n_head": attention.heads,
            "n_layer": len(model.stack.layers) // 2,
            "n_positions": config.max_positions,
            "n_inner": feedforward.from_input.out_features,
            "activation_function": their_activation(feedforward.activation),
            "layer_norm_epsilon": config.norm_epsilon,
            "tie_word_embeddings": config.tied_embeddings,
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout if config.input_dropout is None else config.input_dropout,
            "attn_pdrop": attention.config.dropout,
        }

    def rows(self, model: Any) -> Iterator[WeightMapping]:
        yield WeightMapping("embedding.weight", ("transformer.wte.weight",))
        yield WeightMapping("stack.positions.table.weight", ("transformer.wpe.weight",))
        for index in range(len(model.stack.layers) // 2):
            theirs, first, second = (
                f"transformer.h.{index}",
                f"stack.layers.{2 * index}",
                f"stack.layers.{2 * index + 1}",
            )
            yield from linear(f"{first}.norm", f"{theirs}.ln_1")
            yield from linear(f"{first}.layer.from_input", f"{theirs}.attn.c_attn", transposed=True)
            yield from linear(f"{first}.layer.to_output", f"{theirs}.attn.c_proj", transposed=True)
            yield from linear(f"{second}.norm", f"{theirs}.ln_2")
            yield from linear(f"{second}.layer.from_input", f"{theirs}.mlp.c_fc", transposed=True)
            yield from linear(f"{second}.layer.to_output", f"{theirs}.mlp.c_proj", transposed=True)
        yield from linear("stack.top_norm", "transformer.ln_f")
        if not model.config.tied_embeddings:
            yield WeightMapping("output.weight", ("lm_head.weight",))
