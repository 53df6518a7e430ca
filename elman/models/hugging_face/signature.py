"""The signature of a model: all settings that affect its outputs, equal for two models that compute the same."""

from typing import Any

TRAINING = {
    "balance_weight",
    "dropout",
    "embedding_dropout",
    "input_dropout",
    "keep_share",
    "locked_dropout",
    "mask_share",
    "max_delta",
    "min_delta",
    "output_dropout",
    "random_share",
    "weight_dropout",
}
"""Settings that affect training only."""
DERIVED = {"type", "pattern", "num_layers", "hidden_size", "embedding_size", "expansion"}
"""Settings from which others are derived; those are compared instead."""


def signature_of(model: Any) -> dict[str, Any]:
    """Settings by path, with defaults filled in and those without effect removed."""
    config = model.config
    found = {key: value for key, value in config.plain().items() if key not in TRAINING | DERIVED}
    if config.positions != "learned":
        found.pop("max_positions")
    if hasattr(model, "mask_id"):
        found["mask_id"] = model.mask_id
    found |= {"width": model.embedding.weight.shape[1], "layers": len(model.stack.layers)}
    for index, ((name, settings), block) in enumerate(zip(config.layers(), model.stack.blocks(), strict=True)):
        own = {key: value for key, value in settings.plain().items() if key not in TRAINING | DERIVED}
        own |= _filled(name, block.layer, config)
        if own.get("positions") != "rotary":
            own.pop("rotary_base", None)
        found |= {f"layers.{index}.{name}.{key}": value for key, value in own.items()}
    return found


def _filled(name: str, layer: Any, config: Any) -> dict[str, Any]:
    if name == "two-way-attention":
        return {"num_heads": layer.heads, "kv_heads": layer.kv_heads, "head_size": layer.head_size}
    if name == "attention":
        # a table of learned positions limits the context
        context = min(layer.config.context, config.max_positions if config.positions == "learned" else float("inf"))
        window = layer.config.window if layer.config.window < context else 0
        sizes = {"num_heads": layer.heads, "kv_heads": layer.kv_heads, "head_size": layer.head_size}
        return {**sizes, "context": context, "window": window}
    if name == "experts":
        return {"inner_size": layer.experts[0].to_output.in_features}
    if name == "mamba":
        return {"step_rank": layer.rank}
    return {"inner_size": layer.to_output.in_features}
