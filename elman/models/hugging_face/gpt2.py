"""GPT-2 (Radford et al., 2019): learned positions, attention and feed-forward with biases, layer norm before each."""

from collections.abc import Iterator
from typing import Any

from elman.models.hugging_face.config_reader import Given
from elman.models.hugging_face.family import FAMILIES, Family
from elman.models.hugging_face.weight_map import Row, linear

ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
    "tanh": "tanh",
}
"""Their names and ours; the first for one of ours is the one that is written."""


def their_activation(ours: str) -> str:
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)


@FAMILIES.register("gpt2")
class GPT2(Family):
    """GPT-2 and what has its shape."""

    architecture = "GPT2LMHeadModel"
    prefix = "transformer."
    block = ("attention", "feedforward")
    buffers = r"h\.\d+\.attn\.(bias|masked_bias)"

    def settings(self, given: Given) -> dict[str, Any]:
        width, heads = given.whole("n_embd", 768), given.whole("n_head", 12)
        places = given.whole("n_positions", 1024)
        attention: dict[str, Any] = {"num_heads": heads, "kv_heads": heads, "context": places, "bias": True}
        attention["dropout"] = given.number("attn_pdrop", 0.1)
        feedforward = {
            "inner_size": given.whole("n_inner", 4 * width),
            "activation": given.choice("activation_function", ACTIVATIONS, "gelu_new"),
        }
        given.must("scale_attn_weights", True)
        given.must("scale_attn_by_inverse_layer_idx", False)
        given.must("n_ctx", places)
        given.ignore("reorder_and_upcast_attn")  # a matter of precision below float32
        given.ignore("summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout")
        given.ignore("summary_proj_to_labels")
        return {
            "pattern": [{"attention": attention}, {"feedforward": feedforward}],
            "num_layers": 2 * given.whole("n_layer", 12),
            "hidden_size": width,
            "positions": "learned",
            "max_positions": places,
            "norm": "pre",
            "norm_epsilon": given.number("layer_norm_epsilon", 1e-5),
            "residual": True,
            "tied_embeddings": given.flag("tie_word_embeddings", True),
            "output_bias": False,
            "dropout": given.number("resid_pdrop", 0.1),
            "input_dropout": given.number("embd_pdrop", 0.1),
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

    def rows(self, model: Any) -> Iterator[Row]:
        yield Row("embedding.weight", ("transformer.wte.weight",))
        yield Row("stack.positions.table.weight", ("transformer.wpe.weight",))
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
            yield Row("output.weight", ("lm_head.weight",))
