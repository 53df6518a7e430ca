"""Mixtral (Jiang et al., 2024): Llama with a mixture of experts for the feed-forward, and perhaps a sliding window."""

from collections.abc import Iterator
from typing import Any

from elman.models.hugging_face.config_reader import Given
from elman.models.hugging_face.family import FAMILIES
from elman.models.hugging_face.llama import Llama
from elman.models.hugging_face.weight_map import Row, linear


@FAMILIES.register("mixtral")
class Mixtral(Llama):
    """Mixtral and what has its shape."""

    architecture = "MixtralForCausalLM"
    block = ("attention", "experts")
    theta = 1e6
    epsilon = 1e-5
    places = 131_072

    def _attention(self, given: Given) -> dict[str, Any]:
        window = given.take("sliding_window")
        if window is None:
            return {}
        window, context = given.whole("sliding_window", 1), given.whole("max_position_embeddings", self.places)
        return {"window": window if window < context else 0}

    def _second(self, given: Given) -> dict[str, Any]:
        given.must("router_jitter_noise", 0.0)
        return {
            "num_experts": given.whole("num_local_experts", 8),
            "experts_per_token": given.whole("num_experts_per_tok", 2),
            "inner_size": given.whole("intermediate_size", 14336),
            "balance_weight": given.number("router_aux_loss_coef", 0.001),
        }

    def _describe(self, attention: Any, second: Any) -> dict[str, Any]:
        return {
            "intermediate_size": second.experts[0].to_output.in_features,
            "num_local_experts": second.config.num_experts,
            "num_experts_per_tok": second.config.experts_per_token,
            "router_aux_loss_coef": second.config.balance_weight,
            "sliding_window": attention.config.window or None,
        }

    def _second_rows(self, ours: str, theirs: str, layer: Any) -> Iterator[Row]:
        yield from linear(f"{ours}.router", f"{theirs}.block_sparse_moe.gate", bias=False)
        for expert in range(layer.config.num_experts):
            mine, other = f"{ours}.experts.{expert}", f"{theirs}.block_sparse_moe.experts.{expert}"
            yield from linear(f"{mine}.from_input", f"{other}.w1", f"{other}.w3", bias=False)
            yield from linear(f"{mine}.to_output", f"{other}.w2", bias=False)
