"""A Hugging Face folder on disk: config.json, and safetensors, single or sharded; pickled weights are rejected."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from elman import untrusted
from elman.errors import DataError
from elman.layers.base import at_least_float32
from elman.limits import check_setting

WITHOUT_EFFECT = """
    _attn_implementation_autoset _commit_hash _name_or_path architectures attn_implementation bad_words_ids
    begin_suppress_tokens bos_token_id chunk_size_feed_forward cls_token_id decoder_start_token_id diversity_penalty
    do_sample dtype early_stopping eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id
    forced_eos_token_id gradient_checkpointing id2label initializer_range keys_to_ignore_at_inference label2id
    length_penalty mask_token_id max_length max_new_tokens min_length model_type name_or_path no_repeat_ngram_size
    num_beam_groups num_beams num_return_sequences output_attentions output_hidden_states output_router_logits
    output_scores pad_token_id prefix problem_type remove_invalid_values repetition_penalty return_dict
    return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss
    tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p unk_token_id use_bfloat16
    use_cache vocab_size
"""
"""Keys of any config.json that do not change logits: names, labels, initialization, outputs, generation defaults.

`vocab_size` and special token ids are read where the model and the tokenizer are built.
"""
NEUTRAL: dict[str, Any] = {
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
    "tie_encoder_decoder": False,
}
"""Keys of any config.json that must have these values, if present."""
CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"


class ConfigReader:
    """A config.json, read key by key: keys are mapped, checked for a neutral value, or known to have no effect.

    `finish` rejects all others.
    """

    def __init__(self, settings: Mapping[str, Any], file: str | Path = "config.json"):
        self.settings, self.file = settings, file
        self.read: set[str] = set(WITHOUT_EFFECT.split())
        for name, value in NEUTRAL.items():
            self.require(name, value)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return self.settings.get(name, default)

    def value(self, name: str, default: bool | float) -> Any:
        """A value of the default's type; null means the default, unless it is true or false."""
        value = self.get(name, default)
        if isinstance(default, bool):
            valid, works = isinstance(value, bool), "true or false"
        else:
            value = default if value is None else value
            if isinstance(default, int):
                valid, works = type(value) is int and value >= 1, "a positive integer"
            else:
                valid, works = type(value) in (int, float), "a number"
        if not valid:
            raise self.refuse(name, works)
        try:
            check_setting(name, value)
        except ValueError as error:
            raise DataError(str(error), file=self.file) from None
        return type(default)(value)

    def choice(self, name: str, choices: Mapping[str, str], default: str) -> str:
        """Maps one of their values to ours."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.refuse(name, " or ".join(map(repr, choices)))
        return choices[value]

    def require(self, name: str, *values: Any) -> None:
        """The value must be one of these, or absent."""
        if self.get(name, values[0]) not in values:
            raise self.refuse(name, " or ".join(map(repr, values)))

    def ignore(self, *names: str) -> None:
        """Keys that do not change logits in this architecture."""
        self.read.update(names)

    def refuse(self, name: str, works: str) -> DataError:
        reason = f"{name} is {self.settings.get(name)!r}, which is not supported"
        return DataError(reason, file=self.file, remedy=f"supported: {works}")

    def finish(self) -> None:
        unknown = sorted(set(self.settings) - self.read)
        if unknown:
            name, kind = unknown[0], self.settings.get("model_type")
            more = f" (and {len(unknown) - 1} more unknown keys)" if len(unknown) > 1 else ""
            reason = f"{name} is {self.settings[name]!r}, whose effect on a {kind} model is unknown{more}"
            raise DataError(reason, file=self.file, remedy="remove it if it does not change outputs")


def is_hugging_face(folder: str | Path) -> bool:
    """Whether a folder looks like a Hugging Face model."""
    return (Path(folder) / CONFIG).is_file() and not (Path(folder) / "config.yaml").exists()


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; a missing file is a readable error."""
    if not path.exists():
        remedy = "a Hugging Face folder has a config.json and a model.safetensors"
        raise DataError("no such file", file=path, remedy=remedy)
    content = untrusted.read_json(path, DataError, follow_links=True)
    if not isinstance(content, dict):
        raise DataError(f"is a {type(content).__name__}, not an object", file=path)
    return content


def weight_files(folder: Path) -> dict[str, Path]:
    """The file that contains each weight."""
    found: dict[str, Path] = {}
    for path in _files_of(folder):
        with _open(path) as file:
            found.update(dict.fromkeys(file.keys(), path))
    return found


def read_weight(path: Path, name: str) -> Tensor:
    """A tensor of a file, in at least float32."""
    with _open(path) as file:
        tensor = file.get_tensor(name)
    if not tensor.is_floating_point():
        raise DataError(f"{name} has dtype {tensor.dtype}, not a floating-point one", file=path)
    return at_least_float32(tensor)


def _files_of(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        listed = read_json(folder / INDEX).get("weight_map")
        names = sorted({str(name) for name in listed.values()}) if isinstance(listed, dict) else []
        for name in names:
            if Path(name).name != name:
                raise DataError(f"refers to {name!r}, which is not a file in the same folder", file=folder / INDEX)
            if not (folder / name).is_file():
                raise DataError("missing, but listed in the index", file=folder / name, remedy="copy all shards")
        if names:
            return [folder / name for name in names]
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        reason = f"has its weights in {pickled[0]}, a pickle file, which can run arbitrary code when loaded"
        remedy = "save it again as safetensors: transformers' from_pretrained, then save_pretrained"
        raise DataError(reason, file=folder, remedy=remedy)
    raise DataError(f"has neither {WEIGHTS} nor {INDEX}", file=folder)


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot be read as safetensors: {error}", file=path) from None
