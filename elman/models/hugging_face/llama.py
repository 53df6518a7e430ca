"""Llama (Touvron et al., 2023) and Mixtral (Jiang et al., 2024), which has experts and sliding windows."""

from collections.abc import Iterator
from typing import Any

from elman.models.hugging_face.family import FAMILIES, Family, WeightMapping, linear
from elman.models.hugging_face.folder import ConfigReader


@FAMILIES.register("llama")
class Llama(Family):
    """Llama and compatible models."""

    architecture = "LlamaForCausalLM"
    prefix = "model."
    block = ("attention", "swiglu")
    buffers = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
    theta = 10_000.0  # default of config.json
    epsilon = 1e-6
    places = 2048

    def settings(self, reader: ConfigReader) -> dict[str, Any]:
        width, heads = reader.integer("hidden_size", 4096), reader.integer("num_attention_heads", 32)
        attention = {
            "num_heads": heads,
            "kv_heads": reader.integer("num_key_value_heads", heads),
            "head_size": reader.integer("head_dim", max(width // heads, 1)),
            "context": reader.integer("max_position_embeddings", self.places),
            "positions": "rotary",
            "rotary_base": self._rotary_base(reader),
            "dropout": reader.number("attention_dropout", 0.0),
        }
        attention, second = {**attention, **self._attention(reader)}, self._second(reader)
        reader.require("hidden_act", "silu", "swish")
        return {
            "pattern": [{"attention": attention}, {self.block[1]: second}],
            "num_layers": 2 * reader.integer("num_hidden_layers", 32),
            "hidden_size": width,
            "norm": "pre",
            "norm_type": "rms",
            "norm_epsilon": reader.number("rms_norm_eps", self.epsilon),
            "residual": True,
            "tied_embeddings": reader.boolean("tie_word_embeddings", False),
            "output_bias": False,
        }

    def describe(self, model: Any) -> dict[str, Any]:
        attention = model.stack.layers[0].layer
        return {
            "hidden_size": attention.input_size,
            "num_hidden_layers": len(model.stack.layers) // 2,
            "num_attention_heads": attention.heads,
            "num_key_value_heads": attention.kv_heads,
            "head_dim": attention.head_size,
            "max_position_embeddings": attention.config.context,
            "rope_parameters": {"rope_type": "default", "rope_theta": attention.config.rotary_base},
            "hidden_act": "silu",
            "rms_norm_eps": model.config.norm_epsilon,
            "tie_word_embeddings": model.config.tied_embeddings,
            "attention_dropout": attention.config.dropout,
            **self._describe(attention, model.stack.layers[1].layer),
        }

    def rows(self, model: Any) -> Iterator[WeightMapping]:
        yield WeightMapping("embedding.weight", ("model.embed_tokens.weight",))
        for index in range(len(model.stack.layers) // 2):
            theirs, first, second = (
                f"model.layers.{index}",
                f"stack.layers.{2 * index}",
                f"stack.layers.{2 * index + 1}",
            )
            attention = model.stack.layers[2 * index].layer
            sizes = tuple(heads * attention.head_size for heads in (attention.heads, *2 * (attention.kv_heads,)))
            names = [f"{theirs}.self_attn.{part}_proj" for part in "qkvo"]
            bias = attention.config.bias
            yield from linear(f"{first}.norm", f"{theirs}.input_layernorm", bias=False)
            yield from linear(f"{first}.layer.from_input", *names[:3], bias=bias, sizes=sizes)
            yield from linear(f"{first}.layer.to_output", names[3], bias=bias)
            yield from linear(f"{second}.norm", f"{theirs}.post_attention_layernorm", bias=False)
            yield from self._second_rows(f"{second}.layer", theirs, model.stack.layers[2 * index + 1].layer)
        yield from linear("stack.top_norm", "model.norm", bias=False)
        if not model.config.tied_embeddings:
            yield WeightMapping("output.weight", ("lm_head.weight",))

    def _rotary_base(self, reader: ConfigReader) -> float:
        """Older folders have a top-level rope_theta, and rope_scaling for extended contexts."""
        reader.require("rope_scaling", None)
        reader.require("partial_rotary_factor", 1.0)
        outer = reader.number("rope_theta", self.theta)
        reader.get("rope_parameters")
        nested = ConfigReader(reader.settings.get("rope_parameters") or {}, f"{reader.file}: rope_parameters")
        nested.require("rope_type", "default")
        nested.require("type", "default")
        nested.require("partial_rotary_factor", 1.0)
        base = nested.number("rope_theta", outer)
        nested.finish()
        return base

    def _attention(self, reader: ConfigReader) -> dict[str, Any]:
        """Attention settings that differ within this family."""
        reader.ignore("pretraining_tp")  # computes the same product in slices
        return {"bias": reader.boolean("attention_bias", False)}

    def _second(self, reader: ConfigReader) -> dict[str, Any]:
        """Settings of the second layer of a block."""
        return {"inner_size": reader.integer("intermediate_size", 11008), "bias": reader.boolean("mlp_bias", False)}

    def _describe(self, attention: Any, second: Any) -> dict[str, Any]:
        return {
            "intermediate_size": second.to_output.in_features,
            "attention_bias": attention.config.bias,
            "mlp_bias": second.to_output.bias is not None,
        }

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
    epsilon = 1e-5
    places = 131_072

    def _attention(self, reader: ConfigReader) -> dict[str, Any]:
        window = reader.get("sliding_window")
        if window is None:
            return {}
        window, context = reader.integer("sliding_window", 1), reader.integer("max_position_embeddings", self.places)
        return {"window": window if window < context else 0}

    def _second(self, reader: ConfigReader) -> dict[str, Any]:
        reader.require("router_jitter_noise", 0.0)
        return {
            "num_experts": reader.integer("num_local_experts", 8),
            "experts_per_token": reader.integer("num_experts_per_tok", 2),
            "inner_size": reader.integer("intermediate_size", 14336),
            "balance_weight": reader.number("router_aux_loss_coef", 0.001),
        }

    def _describe(self, attention: Any, second: Any) -> dict[str, Any]:
        return {
            "intermediate_size": second.experts[0].to_output.in_features,
            "num_local_experts": second.config.num_experts,
            "num_experts_per_tok": second.config.experts_per_token,
            "router_aux_loss_coef": second.config.balance_weight,
            "sliding_window": attention.config.window or None,
        }

    def _second_rows(self, ours: str, theirs: str, layer: Any) -> Iterator[WeightMapping]:
        yield from linear(f"{ours}.router", f"{theirs}.block_sparse_moe.gate", bias=False)
        for expert in range(layer.config.num_experts):
            mine, other = f"{ours}.experts.{expert}", f"{theirs}.block_sparse_moe.experts.{expert}"
            yield from linear(f"{mine}.from_input", f"{other}.w1", f"{other}.w3", bias=False)
            yield from linear(f"{mine}.to_output", f"{other}.w2", bias=False)
