"""Reads config.json key by key: keys are mapped, checked for a neutral value, or known to have no effect; others
fail."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elman.errors import DataError

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


class ConfigReader:
    """A config.json that tracks which keys were read; `finish` rejects all others."""

    def __init__(self, settings: Mapping[str, Any], file: str | Path = "config.json"):
        self.settings, self.file = settings, file
        self.read: set[str] = set(WITHOUT_EFFECT.split())
        for name, value in NEUTRAL.items():
            self.require(name, value)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return self.settings.get(name, default)

    def integer(self, name: str, default: int) -> int:
        """A positive integer; null means the default."""
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refuse(name, "a positive integer")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.refuse(name, "a number")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

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
        return DataError(
            f"{name} is {self.settings.get(name)!r}, which is not supported",
            file=self.file,
            remedy=f"supported: {works}",
        )

    def finish(self) -> None:
        unknown = sorted(set(self.settings) - self.read)
        if unknown:
            name = unknown[0]
            more = f" (and {len(unknown) - 1} more unknown keys)" if len(unknown) > 1 else ""
            raise DataError(
                f"{name} is {self.settings[name]!r}, whose effect on a {self.settings.get('model_type')} model is "
                f"unknown{more}",
                file=self.file,
                remedy="remove it if it does not change outputs",
            )
