"""Hugging Face folders of all versions: what is read, and what is rejected by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hugging_face_models import OURS, VOCAB, make_ours, write_folder

from elman.errors import ConfigError, DataError
from elman.models.hugging_face import FAMILIES, from_folder
from elman.models.hugging_face.folder import ConfigReader

OLD = {
    "gpt2": {"n_ctx": 96, "task_specific_params": {"text-generation": {"do_sample": True}}, "torch_dtype": "float16"},
    "llama": {"rope_theta": 500000.0, "rope_scaling": None, "pretraining_tp": 2, "torch_dtype": "bfloat16"},
    "mixtral": {"rope_theta": 1e4, "_name_or_path": "x", "max_length": 20},
    "mamba": {"d_model": 32, "d_inner": 64, "n_layer": 2, "rms_norm": True, "ssm_cfg": {}, "fused_add_norm": True},
}


@pytest.mark.parametrize("name", OLD)
def test_config_keys_of_older_folders_are_read(name):
    given = ConfigReader(
        {"model_type": name, "hidden_size": 32, "num_hidden_layers": 2, "n_positions": 96, **OLD[name]}
    )
    settings = FAMILIES[name]().settings(given)
    if name == "llama":
        assert settings["pattern"][0]["attention"]["rotary_base"] == 500000.0
    given.ignore("hidden_size", "num_hidden_layers", "n_positions")
    given.finish()


WRONG = [
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights is False"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True"),
    ("gpt2", {"activation_function": "gelu_fast"}, "activation_function is 'gelu_fast'.*'gelu_new' or"),
    ("gpt2", {"n_embd": "wide"}, "n_embd is 'wide'.*a positive integer"),
    ("gpt2", {"layer_norm_epsilon": "small"}, "layer_norm_epsilon is 'small'"),
    ("gpt2", {"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
    ("gpt2", {"frobnicate": 3, "zeal": 1}, "frobnicate is 3.*unknown.*1 more"),
    ("gpt2", {"vocab_size": None}, "vocab_size is None"),
    ("gpt2", {"vocab_size": 10**8}, "vocab_size is 100000000, but at most"),
    ("gpt2", {"vocab_size": 10**7}, r"has shape .*implies \(10000000, "),
    ("gpt2", {"n_embd": 10**30}, "n_embd is 10000000000.*, but at most"),
    ("gpt2", {"n_layer": 10**6}, "num_layers is 2000000, but at most"),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling is .*llama3"),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_parameters: rope_type is 'yarn'"),
    ("llama", {"rope_parameters": {"rope_type": "default", "factor": 2}}, "factor is 2"),
    ("llama", {"rope_parameters": 7}, "rope_parameters is 7, which is not supported"),
    ("llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ("llama", {"num_key_value_heads": 3}, "4 query heads cannot share 3"),
    ("llama", {"sliding_window": 8}, "sliding_window is 8"),
    ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise is 0.1"),
    ("mixtral", {"attention_bias": True}, "attention_bias is True"),
    ("mamba", {"intermediate_size": 50}, "intermediate_size is 50"),
    ("mamba", {"expand": 1.5}, "expand is 1.5"),
    ("mamba", {"rms_norm": False}, "rms_norm is False"),
    ("mamba", {"model_type": "mamba2"}, "model_type is 'mamba2'.*bert, gpt2, llama, mamba, mixtral"),
    ("bert", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    ("bert", {"is_decoder": True}, "is_decoder is True"),
    ("bert", {"mask_token_id": 99}, "mask_id is 99"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for name in OURS:
        made[name] = tmp_path_factory.mktemp("made") / name
        write_folder(made[name], make_ours(name))
    return made


def copied(folders: dict[str, Path], name: str, to: Path, config: dict[str, Any] | None = None) -> Path:
    to.mkdir()
    for file in folders[name].iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    settings = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(settings | (config or {})))
    return to


@pytest.mark.parametrize(("name", "config", "says"), WRONG)
def test_unsupported_settings_are_rejected_by_name(folders, tmp_path, name, config, says):
    with pytest.raises((DataError, ConfigError), match=says):
        from_folder(copied(folders, name, tmp_path / "folder", config))


def change_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes()) | changes
    safetensors.torch.save_file({key: value for key, value in tensors.items() if value is not None}, path)


def test_missing_unexpected_and_misshapen_weights_are_named(folders, tmp_path):
    missing, more, shape = (copied(folders, "llama", tmp_path / name) for name in ("missing", "more", "shape"))
    change_weights(missing, **{"model.layers.1.self_attn.k_proj.weight": None})
    with pytest.raises(DataError, match=r"'model.layers.1.self_attn.k_proj.weight' is missing"):
        from_folder(missing)
    change_weights(more, **{"score.weight": torch.zeros(2)})
    with pytest.raises(DataError, match=r"unexpected weight 'score.weight'"):
        from_folder(more)
    change_weights(shape, **{"model.norm.weight": torch.zeros(7)})
    with pytest.raises(DataError, match=r"model.norm.weight has shape \(7,\), but config.json implies \(32,\)"):
        from_folder(shape)


def test_base_model_with_old_buffers_in_half_precision_is_read(folders, tmp_path):
    folder = copied(folders, "gpt2", tmp_path / "folder")
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    bare = {name.removeprefix("transformer."): weight.half() for name, weight in tensors.items()}
    bare |= {"h.0.attn.bias": torch.ones(1, 1, 96, 96), "lm_head.weight": bare["wte.weight"].clone()}
    safetensors.torch.save_file(bare, path)
    weight = from_folder(folder).embedding.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, bare["wte.weight"].float())


def test_old_weight_names_and_unused_weights_are_accepted(folders, tmp_path):
    folder = copied(folders, "bert", tmp_path / "folder")
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): w for name, w in tensors.items()
    }
    old |= {"bert.pooler.dense.weight": torch.zeros(32, 32), "cls.seq_relationship.bias": torch.zeros(2)}
    safetensors.torch.save_file(old, path)
    expected, found = from_folder(folders["bert"]).state_dict(), from_folder(folder).state_dict()
    assert all(torch.equal(weight, found[key]) for key, weight in expected.items())


def test_mask_token_is_found_or_added(folders, tmp_path):
    folder = copied(folders, "bert", tmp_path / "folder", {"mask_token_id": None})
    added, told = from_folder(folder), from_folder(folder, mask_id=5)
    assert (added.mask_id, len(added.embedding.weight)) == (VOCAB + 1, VOCAB + 2)
    assert (told.mask_id, len(told.embedding.weight)) == (5, VOCAB + 1)
    assert not added.embedding.weight[-1].any()


def sharded(folders: dict[str, Path], to: Path) -> Path:
    folder = copied(folders, "mixtral", to)
    tensors = list(safetensors.torch.load((folder / "model.safetensors").read_bytes()).items())
    places = {}
    for number, part in enumerate([tensors[:9], tensors[9:]], start=1):
        safetensors.torch.save_file(dict(part), folder / f"model-0000{number}-of-00002.safetensors")
        places |= {name: f"model-0000{number}-of-00002.safetensors" for name, _ in part}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def test_sharded_weights_are_read(folders, tmp_path):
    whole, parts = from_folder(folders["mixtral"]), from_folder(sharded(folders, tmp_path / "parts"))
    assert all(torch.equal(weight, parts.state_dict()[key]) for key, weight in whole.state_dict().items())


def test_missing_shards_and_paths_outside_the_folder_are_rejected(folders, tmp_path):
    folder = sharded(folders, tmp_path / "parts")
    (folder / "model-00002-of-00002.safetensors").rename(tmp_path / "away.safetensors")
    with pytest.raises(DataError, match="missing, but listed in the index"):
        from_folder(folder)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../away.safetensors"}}))
    with pytest.raises(DataError, match="not a file in the same folder"):
        from_folder(folder)


def test_pickles_and_damaged_files_are_rejected(folders, tmp_path):
    folder = copied(folders, "llama", tmp_path / "folder")
    (folder / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{broken}")
    with pytest.raises(DataError, match="cannot be read as safetensors"):
        from_folder(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"pytorch_model.bin.*run arbitrary code.*save_pretrained"):
        from_folder(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(DataError, match="has neither"):
        from_folder(folder)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(DataError, match="is a list, not an object"):
        from_folder(folder)
    with pytest.raises(DataError, match="no such file"):
        from_folder(tmp_path / "nowhere")
