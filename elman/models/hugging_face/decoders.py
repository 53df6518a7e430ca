"""Left-to-right architectures: GPT-2, Llama, Mixtral and Mamba.

GPT-2 (Radford et al., 2019) has learned positions, biases and pre-norm; Llama (Touvron et al., 2023) rotary positions,
grouped-query attention, SwiGLU and RMS norm; Mixtral (Jiang et al., 2024) is Llama with a mixture of experts and
optional sliding windows; Mamba (Gu & Dao, 2023) has selective state space layers with RMS norm before each.
"""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from elman.layers.mamba import HUGGING_FACE
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
    tied: ClassVar = {"lm_head.weight": "transformer.wte.weight"}
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
        **{"positions": "learned", "norm": "pre", "output_bias": False, "0.bias": True},
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


def _keys(places: int, epsilon: float) -> tuple[Key, ...]:
    """The keys that Llama and Mixtral share, with the defaults in which they differ."""
    return (
        Key("hidden_size", "hidden_size", 4096),
        Key("num_hidden_layers", "blocks", 32),
        Key("num_attention_heads", "0.num_heads", 32),
        Key("num_key_value_heads", "0.kv_heads", lambda found: found["0.num_heads"]),
        Key("head_dim", "0.head_size", lambda found: max(found["hidden_size"] // found["0.num_heads"], 1)),
        Key("max_position_embeddings", "0.context", places),
        Key("attention_dropout", "0.dropout", 0.0),
        Key("rms_norm_eps", "norm_epsilon", epsilon),
        Key("tie_word_embeddings", "tied_embeddings", False),
    )


@FAMILIES.register("llama")
class Llama(Family):
    """Llama and compatible models."""

    architecture = "LlamaForCausalLM"
    prefix = "model."
    tied: ClassVar = {"lm_head.weight": "model.embed_tokens.weight"}
    block = ("attention", "swiglu")
    buffers = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
    theta = 10_000.0  # default of config.json
    keys = (
        *_keys(places=2048, epsilon=1e-6),
        Key("intermediate_size", "1.inner_size", 11008),
        Key("attention_bias", "0.bias", False),
        Key("mlp_bias", "1.bias", False),
    )
    fixed: ClassVar = {"norm": "pre", "norm_type": "rms", "output_bias": False, "0.positions": "rotary"}

    def check(self, reader: ConfigReader, found: dict[str, Any]) -> dict[str, Any]:
        reader.require("hidden_act", "silu", "swish")
        reader.ignore("pretraining_tp")  # computes the same product in slices
        return {"0.rotary_base": self._rotary_base(reader)}

    def _rotary_base(self, reader: ConfigReader) -> float:
        """Older folders have a top-level rope_theta, and rope_scaling for extended contexts."""
        reader.require("rope_scaling", None)
        reader.require("partial_rotary_factor", 1.0)
        outer = reader.value("rope_theta", self.theta)
        parameters = reader.get("rope_parameters") or {}
        if not isinstance(parameters, dict):
            raise reader.refuse("rope_parameters", "an object")
        nested = ConfigReader(parameters, f"{reader.file}: rope_parameters")
        nested.require("rope_type", "default")
        nested.require("type", "default")
        nested.require("partial_rotary_factor", 1.0)
        base = nested.value("rope_theta", outer)
        nested.finish()
        return base

    def describe_rest(self, model: Any, found: dict[str, Any]) -> dict[str, Any]:
        rotary = {"rope_type": "default", "rope_theta": found["0.rotary_base"]}
        return {"rope_parameters": rotary, "hidden_act": "silu"}

    def body(self, model: Any) -> Iterator[WeightMapping]:
        yield WeightMapping("embedding.weight", ("model.embed_tokens.weight",))
        for index, first, second in self.blocks(model):
            theirs, attention = f"model.layers.{index}", model.get_submodule(f"{first}.layer")
            sizes = tuple(heads * attention.head_size for heads in (attention.heads, *2 * (attention.kv_heads,)))
            names = [f"{theirs}.self_attn.{part}_proj" for part in "qkvo"]
            bias = attention.config.bias
            yield from linear(f"{first}.norm", f"{theirs}.input_layernorm", bias=False)
            yield from linear(f"{first}.layer.from_input", *names[:3], bias=bias, sizes=sizes)
            yield from linear(f"{first}.layer.to_output", names[3], bias=bias)
            yield from linear(f"{second}.norm", f"{theirs}.post_attention_layernorm", bias=False)
            yield from self._second_rows(f"{second}.layer", theirs, model.get_submodule(f"{second}.layer"))
        yield from linear("stack.top_norm", "model.norm", bias=False)

    def _second_rows(self, ours: str, theirs: str, layer: Any) -> Iterator[WeightMapping]:
        bias = layer.to_output.bias is not None
        yield from linear(f"{ours}.from_input", f"{theirs}.mlp.gate_proj", f"{theirs}.mlp.up_proj", bias=bias)
        yield from linear(f"{ours}.to_output", f"{theirs}.mlp.down_proj", bias=bias)


@FAMILIES.register("mixtral")
class Mixtral(Llama):
    """Mixtral and compatible models."""

    architecture = "MixtralForCausalLM"
    block = ("attention", "experts")
    theta = 1e6
    keys = (
        *_keys(places=131_072, epsilon=1e-5),
        Key("intermediate_size", "1.inner_size", 14336),
        Key("num_local_experts", "1.num_experts", 8),
        Key("num_experts_per_tok", "1.experts_per_token", 2),
        Key("router_aux_loss_coef", "1.balance_weight", 0.001),
    )

    def check(self, reader: ConfigReader, found: dict[str, Any]) -> dict[str, Any]:
        reader.require("hidden_act", "silu", "swish")
        reader.require("router_jitter_noise", 0.0)
        window = 0 if reader.get("sliding_window") is None else reader.value("sliding_window", 1)
        return {"0.rotary_base": self._rotary_base(reader), "0.window": window if window < found["0.context"] else 0}

    def describe_rest(self, model: Any, found: dict[str, Any]) -> dict[str, Any]:
        return {**super().describe_rest(model, found), "sliding_window": found["0.window"] or None}

    def _second_rows(self, ours: str, theirs: str, layer: Any) -> Iterator[WeightMapping]:
        yield from linear(f"{ours}.router", f"{theirs}.block_sparse_moe.gate", bias=False)
        for expert in range(layer.config.num_experts):
            mine, other = f"{ours}.experts.{expert}", f"{theirs}.block_sparse_moe.experts.{expert}"
            yield from linear(f"{mine}.from_input", f"{other}.w1", f"{other}.w3", bias=False)
            yield from linear(f"{mine}.to_output", f"{other}.w2", bias=False)


@FAMILIES.register("mamba")
class Mamba(Family):
    """Mamba and compatible models."""

    architecture = "MambaForCausalLM"
    prefix = "backbone."
    tied: ClassVar = {"lm_head.weight": "backbone.embeddings.weight"}
    block = ("mamba",)

    keys = (
        Key("hidden_size", "hidden_size", 768),
        Key("num_hidden_layers", "blocks", 32),
        Key("expand", "0.expand", 2.0),
        Key("state_size", "0.state_size", 16),
        Key("conv_kernel", "0.kernel_size", 4),
        Key("use_bias", "0.bias", False),
        Key("use_conv_bias", "0.convolution_bias", True),
        Key("time_step_min", "0.min_delta", 0.001),
        Key("time_step_max", "0.max_delta", 0.1),
        Key("layer_norm_epsilon", "norm_epsilon", 1e-5),
        Key("tie_word_embeddings", "tied_embeddings", True),
    )
    fixed: ClassVar = {"norm": "pre", "norm_type": "rms", "output_bias": False}

    def check(self, reader: ConfigReader, found: dict[str, Any]) -> dict[str, Any]:
        width, expand = found["hidden_size"], int(found["0.expand"])
        if expand != found["0.expand"]:
            raise reader.refuse("expand", "an integer")
        automatic = reader.get("time_step_rank", "auto") == "auto"
        reader.require("hidden_act", "silu", "swish")
        reader.require("intermediate_size", expand * width)
        reader.ignore("residual_in_fp32")  # always float32 here
        reader.ignore("time_step_scale", "time_step_floor", "time_step_init_scheme", "rescale_prenorm_residual")
        reader.ignore("use_mambapy", "use_associative_scan", "fused_add_norm", "pad_vocab_size_multiple")
        reader.require("d_model", width)  # these keys come from the authors' original checkpoints
        reader.require("d_inner", expand * width)
        reader.require("n_layer", found["blocks"])
        reader.require("rms_norm", True)
        reader.require("ssm_cfg", {})
        rank = math.ceil(width / 16) if automatic else reader.value("time_step_rank", 1)
        return {"0.expand": expand, "0.step_rank": rank}

    def describe_rest(self, model: Any, found: dict[str, Any]) -> dict[str, Any]:
        inner = model.stack.layers[0].layer.inner
        return {"intermediate_size": inner, "time_step_rank": found["0.step_rank"], "hidden_act": "silu"}

    def body(self, model: Any) -> Iterator[WeightMapping]:
        yield WeightMapping("embedding.weight", ("backbone.embeddings.weight",))
        theirs_of = {ours: theirs for theirs, ours in HUGGING_FACE.items()}
        for index, block in enumerate(model.stack.layers):
            ours, theirs = f"stack.layers.{index}", f"backbone.layers.{index}"
            yield WeightMapping(f"{ours}.norm.weight", (f"{theirs}.norm.weight",))
            for name, _ in block.layer.named_parameters():
                first, *rest = name.split(".")
                yield WeightMapping(f"{ours}.layer.{name}", (".".join([f"{theirs}.mixer", theirs_of[first], *rest]),))
        yield WeightMapping("stack.top_norm.weight", ("backbone.norm_f.weight",))
