"""Random configurations of transformers' models: imported with equal logits, or refused by a setting."""

import os
from typing import Any

import numpy as np
import pytest
import torch
from hugging_face_models import scatter

from elman.errors import DataError
from elman.models.hugging_face import from_folder

LENGTH = 20
TRUTH = (False, True)
WIDTHS = {"hidden_size": (8, 24, 48), "num_hidden_layers": (1, 2, 3), "tie_word_embeddings": TRUTH}
HEADS = {"num_attention_heads": (1, 2, 4), "intermediate_size": (1, 17, 40)}
ROTARY = {
    **WIDTHS,
    **HEADS,
    "num_key_value_heads": (1, 2, 4),
    "head_dim": (None, 4, 6),
    "max_position_embeddings": (LENGTH, 64),
    "rms_norm_eps": (1e-6, 1e-2),
    "rope_parameters": (
        {"rope_type": "default", "rope_theta": 10_000.0},
        {"rope_type": "default", "rope_theta": 300.0},
        {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
    ),
    "hidden_act": ("silu", "silu", "silu", "gelu"),
}
SPACES: dict[str, tuple[str, dict[str, tuple[Any, ...]]]] = {
    "GPT2": (
        "GPT2LMHeadModel",
        {
            **{"n_embd": (8, 24), "n_layer": (1, 2, 3), "n_head": (1, 2, 4), "n_positions": (LENGTH, 50)},
            **{"n_inner": (None, 1, 30), "tie_word_embeddings": TRUTH, "layer_norm_epsilon": (1e-5, 1e-2)},
            "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu", "tanh", "quick_gelu"),
            "scale_attn_weights": (True, True, True, False),
            "scale_attn_by_inverse_layer_idx": (False, False, False, True),
            "reorder_and_upcast_attn": TRUTH,
        },
    ),
    "Llama": ("LlamaForCausalLM", {**ROTARY, "attention_bias": TRUTH, "mlp_bias": TRUTH}),
    "Mixtral": (
        "MixtralForCausalLM",
        {
            **ROTARY,
            **{"intermediate_size": (8, 40), "num_local_experts": (2, 5), "num_experts_per_tok": (1, 2)},
            "sliding_window": (None, 1, 5, 100),
        },
    ),
    "Mamba": (
        "MambaForCausalLM",
        {
            **WIDTHS,
            **{"state_size": (1, 5, 16), "expand": (1, 2), "conv_kernel": (1, 2, 4), "time_step_rank": ("auto", 1, 7)},
            **{"use_bias": TRUTH, "use_conv_bias": TRUTH, "layer_norm_epsilon": (1e-5, 1e-2)},
            "hidden_act": ("silu", "silu", "silu", "gelu"),
            "residual_in_fp32": TRUTH,
        },
    ),
    "Bert": (
        "BertForMaskedLM",
        {
            **WIDTHS,
            **HEADS,
            "hidden_act": ("gelu", "gelu", "relu"),
            **{"max_position_embeddings": (LENGTH, 40), "type_vocab_size": (1, 2, 3), "layer_norm_eps": (1e-12, 1e-2)},
        },
    ),
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    found = pytest.importorskip("transformers")
    found.utils.logging.disable_progress_bar()
    return found


def drawn(kind: str, seed: int) -> dict[str, Any]:
    """Settings of a configuration, each from its space; heads that divide the width."""
    random = np.random.default_rng([seed, len(kind)])
    found = {key: space[random.integers(len(space))] for key, space in SPACES[kind][1].items()}
    if "num_key_value_heads" in found:
        found["num_key_value_heads"] = min(found["num_key_value_heads"], found["num_attention_heads"])
    return {"vocab_size": int(random.integers(2, 60)), "bos_token_id": 0, "eos_token_id": 1, **found}


def supported(kind: str, settings: dict[str, Any]) -> bool:
    activation = settings.get("hidden_act", settings.get("activation_function"))
    rotary = settings.get("rope_parameters", {}).get("rope_type", "default")
    scaled = settings.get("scale_attn_weights", True) and not settings.get("scale_attn_by_inverse_layer_idx")
    known = {"GPT2": activation != "quick_gelu", "Bert": activation == "gelu"}.get(kind, activation == "silu")
    return known and scaled and rotary == "default"


def try_configuration(transformers: Any, kind: str, seed: int, folder: Any) -> bool:
    """Whether it is imported: then logits are equal."""
    settings = drawn(kind, seed)
    theirs = scatter(getattr(transformers, SPACES[kind][0])(getattr(transformers, f"{kind}Config")(**settings)))
    theirs.save_pretrained(folder)
    if not supported(kind, settings):
        with pytest.raises(DataError, match="which is not supported"):
            from_folder(folder)
        return False
    ours = from_folder(folder)
    tokens = torch.randint(settings["vocab_size"], (2, LENGTH), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        expected, found = theirs(tokens).logits, ours(tokens)[0]
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected[..., : ours.vocab_size], rtol=0, atol=2e-5 * scale, msg=f"{settings}")
    return True


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPACES)
def test_random_configurations_are_imported_with_equal_logits_or_refused(transformers, kind, tmp_path) -> None:
    imported = sum(try_configuration(transformers, kind, seed, tmp_path / str(seed)) for seed in range(8))
    assert 0 < imported < 8
