"""Our models that can be exported to Hugging Face folders, and such folders."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from elman.models import MODELS
from elman.models.hugging_face import export_contents

VOCAB = 61
RESIDUAL = {"residual": True, "norm": "pre", "output_bias": False, "hidden_size": 32}
OURS: dict[str, dict[str, Any]] = {
    "gpt2": {
        **RESIDUAL,
        "pattern": [{"attention": {"bias": True, "num_heads": 2}}, {"feedforward": {"activation": "gelu"}}] * 2,
        "positions": "learned",
        "max_positions": 80,
    },
    "llama": {
        **RESIDUAL,
        "pattern": [
            {"attention": {"positions": "rotary", "context": 80, "num_heads": 4, "kv_heads": 2}},
            {"swiglu": {}},
        ],
        "num_layers": 4,
        "norm_type": "rms",
        "tied_embeddings": False,
    },
    "mixtral": {
        **RESIDUAL,
        "pattern": [
            {"attention": {"positions": "rotary", "context": 80, "window": 9, "num_heads": 2}},
            {"experts": {"num_experts": 3}},
        ],
        "norm_type": "rms",
    },
    "bert": {
        **RESIDUAL,
        "type": "masked",
        "pattern": [{"two-way-attention": {"bias": True, "num_heads": 2}}, {"feedforward": {}}] * 2,
        "positions": "learned",
        "max_positions": 80,
        "norm": "post",
        "embedding_norm": True,
        "output_bias": True,
        "head": "dense",
    },
    "mamba": {**RESIDUAL, "pattern": [{"mamba": {"state_size": 3}}] * 2, "norm_type": "rms"},
}


def scatter(model: Any) -> Any:
    """Weights large enough that every part of the model affects its output."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = float("norm" in name.lower() or ".ln_" in name) if name.endswith("weight") else 0.0
            if not name.endswith(("A_log", "log_rate")):
                parameter.normal_(centre, 0.25)
    return model.eval()


def make_ours(name: str, **more: Any) -> Any:
    settings = {"type": "stack", **OURS[name], **more}
    kind = MODELS[settings["type"]]
    return scatter(kind(kind.Config.make(settings), VOCAB))


def write_folder(folder: Path, model: Any) -> Any:
    family, config, tensors = export_contents(model)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return family
