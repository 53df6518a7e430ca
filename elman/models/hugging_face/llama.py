"""Llama (Touvron et al., 2023) and Mixtral (Jiang et al., 2024), which has experts and sliding windows."""

from collections.abc import Iterator
from typing import Any, ClassVar

from elman.models.hugging_face.family import FAMILIES, Family, Key, WeightMapping, linear
from elman.models.hugging_face.folder import ConfigReader


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
    block = ("attention", "swiglu")
    buffers = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
    theta = 10_000.0  # default of config.json
    keys = (
        *_keys(places=2048, epsilon=1e-6),
        Key("intermediate_size", "1.inner_size", 11008),
        Key("attention_bias", "0.bias", False),
        Key("mlp_bias", "1.bias", False),
    )
    fixed: ClassVar = {
        **{"norm": "pre", "norm_type": "rms", "residual": True, "output_bias": False, "0.positions": "rotary"},
    }

    def check(self, reader: ConfigReader, found: dict[str, Any]) -> dict[str, Any]:
        reader.require("hidden_act", "silu", "swish")
        reader.ignore("pretraining_tp")  # computes the same product in slices
        return {"0.rotary_base": self._rotary_base(reader)}

    def _rotary_base(self, reader: ConfigReader) -> float:
        """Older folders have a top-level rope_theta, and rope_scaling for extended contexts."""
        reader.require("rope_scaling", None)
        reader.require("partial_rotary_factor", 1.0)
        outer = reader.value("rope_theta", self.theta)
        reader.get("rope_parameters")
        nested = ConfigReader(reader.settings.get("rope_parameters") or {}, f"{reader.file}: rope_parameters")
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
