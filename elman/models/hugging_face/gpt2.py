"""GPT-2 (Radford et al., 2019): learned positions, attention and feed-forward with biases, pre-norm."""

from collections.abc import Iterator
from typing import Any, ClassVar

from elman.models.hugging_face.family import FAMILIES, Family, Key, WeightMapping, linear
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


@FAMILIES.register("gpt2")
class GPT2(Family):
    """GPT-2 and compatible models."""

    architecture = "GPT2LMHeadModel"
    prefix = "transformer."
    block = ("attention", "feedforward")
    buffers = r"h\.\d+\.attn\.(bias|masked_bias)"

    keys = (
        Key("n_embd", "hidden_size", 768),
        Key("n_layer", "blocks", 12),
        Key("n_head", "0.num_heads", 12),
        Key("n_positions", "max_positions", 1024),
        Key("n_inner", "1.inner_size", lambda found: 4 * found["hidden_size"]),
        Key("activation_function", "1.activation", "gelu_new", ACTIVATIONS),
        Key("layer_norm_epsilon", "norm_epsilon", 1e-5),
        Key("tie_word_embeddings", "tied_embeddings", True),
        Key("resid_pdrop", "dropout", 0.1),
        Key("embd_pdrop", "input_dropout", 0.1),
        Key("attn_pdrop", "0.dropout", 0.1),
    )
    fixed: ClassVar = {
        **{"positions": "learned", "norm": "pre", "residual": True, "output_bias": False, "0.bias": True},
        **{"output_dropout": 0.0, "locked_dropout": False},
    }

    def check(self, reader: ConfigReader, found: dict[str, Any]) -> dict[str, Any]:
        reader.require("scale_attn_weights", True)
        reader.require("scale_attn_by_inverse_layer_idx", False)
        reader.require("n_ctx", found["max_positions"])
        reader.ignore("reorder_and_upcast_attn")  # affects precision below float32 only
        reader.ignore("summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout")
        reader.ignore("summary_proj_to_labels")
        return {"0.kv_heads": found["0.num_heads"], "0.context": found["max_positions"]}

    def describe_rest(self, model: Any, found: dict[str, Any]) -> dict[str, Any]:
        return {}

    def body(self, model: Any) -> Iterator[WeightMapping]:
        yield WeightMapping("embedding.weight", ("transformer.wte.weight",))
        yield WeightMapping("stack.positions.table.weight", ("transformer.wpe.weight",))
        for index, first, second in self.blocks(model):
            theirs = f"transformer.h.{index}"
            yield from linear(f"{first}.norm", f"{theirs}.ln_1")
            yield from linear(f"{first}.layer.from_input", f"{theirs}.attn.c_attn", transposed=True)
            yield from linear(f"{first}.layer.to_output", f"{theirs}.attn.c_proj", transposed=True)
            yield from linear(f"{second}.norm", f"{theirs}.ln_2")
            yield from linear(f"{second}.layer.from_input", f"{theirs}.mlp.c_fc", transposed=True)
            yield from linear(f"{second}.layer.to_output", f"{theirs}.mlp.c_proj", transposed=True)
        yield from linear("stack.top_norm", "transformer.ln_f")
