"""Settings of a mask-predict model with the shape of a trained Transformer, so that it can start from its weights."""

from collections.abc import Mapping
from typing import Any

from elman.errors import ConfigError

PARALLEL = {"attention": "two-way-attention", **{name: name for name in ("cross-attention", "feedforward", "swiglu")}}


def parallel_settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """From the settings of an encoder-decoder: causal attention in its decoder becomes two-way attention."""
    if model["type"] == "mask-predict":
        return dict(model)
    pattern = [next(iter(entry.items())) for entry in model["decoder"]["pattern"]]
    other = [name for name, _ in pattern if name not in PARALLEL]
    if other or model["decoder"]["context"] or model["decoder"]["attention"]:
        what = f"its decoder has {other[0]}" if other else "its decoder gets the source through its state"
        raise ConfigError(f"start_from: {what}; only a Transformer's weights fit a model that writes all words at once")
    two_way = [
        {PARALLEL[name]: {key: value for key, value in settings.items() if (name, key) != ("attention", "context")}}
        for name, settings in pattern
    ]
    return {**model, "type": "mask-predict", "decoder": {**model["decoder"], "pattern": two_way}}
