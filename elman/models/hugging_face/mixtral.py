"""Mixtral (Jiang et al., 2024): Llama with a mixture of experts and optional sliding window attention."""

from collections.abc import Iterator
from typing import Any

from elman.models.hugging_face.config_reader import ConfigReader
from elman.models.hugging_face.family import FAMILIES
from elman.models.hugging_face.llama import Llama
from elman.models.hugging_face.weight_map import WeightMapping, linear


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
