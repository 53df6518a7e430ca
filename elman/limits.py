"""Limits on what a file may ask for, and on waiting, in one place. Each can be changed in the environment:

ELMAN_LIMITS="json_bytes=1e9 layers=10000" elman train ...
"""

import os
from collections.abc import Callable
from functools import cache
from typing import Any, Self

from pydantic import Field, model_validator

from elman.config import Config
from elman.errors import ConfigError, brief

VARIABLE = "ELMAN_LIMITS"
SMALL = 64  # the smallest limit: what is not larger needs no look-up


def _memory_of_machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has none of this
        return 2**40


class Limits(Config):
    """The largest values that are accepted. They are far above what sensible files hold."""

    yaml_bytes: int = Field(1_000_000, gt=0)
    """Size of a recipe or of a run's config.yaml."""
    json_bytes: int = Field(200_000_000, gt=0)
    """Size of a JSON file of a run, a race or a Hugging Face folder, tokenizers included."""
    rank_seconds: int = Field(120, gt=0)
    """Seconds that a process of a torchrun job waits for the others in a step; 30 times as long while rank 0 prepares,
    validates or saves."""
    unpacked_bytes: int = Field(30_000_000, gt=0)
    """Bytes that any compressed file may unpack to."""
    unpacked_ratio: int = Field(200, gt=0)
    """How many times their own size larger ones may unpack to; text rarely compresses more than tenfold."""
    layers: int = Field(4096, gt=0)
    """Layers of a model: num_layers, and the length of a pattern."""
    order: int = Field(64, gt=0)
    """Order of an n-gram model."""
    width: int = Field(2**17, gt=0)
    """Any size inside a layer: hidden_size, inner_size, num_heads, num_experts, kernel_size and so on."""
    parameters: int = Field(10**11, gt=0)
    """Weights of a model, with its tables."""
    tensors: int = Field(50_000, gt=0)
    """Tensors that a model's weights consist of."""
    memory: int = Field(default_factory=_memory_of_machine, gt=0)
    """Bytes that the weights of a model may take; by default the memory of this machine."""
    vocabulary: int = Field(10**7, gt=0)
    """Tokens of a tokenizer."""
    tokenizer_steps: int = Field(64, gt=0)
    """Steps of an imported tokenizer, such as normalizers; those in use have fewer than ten."""
    tokenizer_growth: int = Field(64, gt=0)
    """Characters that the steps of an imported tokenizer may make of one."""
    threads: int = Field(1024, gt=0)
    """CPU threads."""
    candidates: int = Field(10_000, gt=0)
    """Hypotheses of a search: beam_size, num_best, lengths and iterations."""
    seed: int = Field(2**63 - 1, gt=0)
    """Random seeds."""
    count: int = Field(10**9, gt=0)
    """Any other whole number: epochs, steps, lengths, sizes of batches."""
    amount: int = Field(10**18, gt=0)
    """Budgets in tokens, operations or parameters, and bytes of a record."""

    @model_validator(mode="after")
    def within_limits(self) -> Self:
        """Limits themselves have none."""
        return self


SIZES = """
    character_size dilation embedding_size expand experts_per_token head_size hidden_size inner_size kernel_size
    kv_heads length_range num_experts num_heads state_size step_rank
"""
LIMIT_OF = {
    **dict.fromkeys(SIZES.split(), "width"),
    **dict.fromkeys(("num_layers", "pattern"), "layers"),
    **dict.fromkeys(("vocab_size", "eos_id", "start_id", "mask_id"), "vocabulary"),
    **dict.fromkeys(("beam_size", "num_best", "lengths", "iterations"), "candidates"),
    **dict.fromkeys(("flops", "tokens", "parameters", "max_record_bytes"), "amount"),
    **{name: name for name in ("order", "threads", "seed")},
}
"""The limit of each setting that is a whole number or a list; `count` for all others."""


@cache
def _parsed(text: str) -> Limits:
    given = {}
    for word in text.split():
        key, _, value = word.partition("=")
        try:
            given[key] = int(float(value))
        except (ValueError, OverflowError):
            raise ConfigError(f"{VARIABLE}: {word!r} is not a limit; write NAME=NUMBER, separated by spaces") from None
    return Limits.make(given, where=VARIABLE)


def limits() -> Limits:
    """The limits in force: the defaults, but for what ELMAN_LIMITS sets."""
    return _parsed(os.environ.get(VARIABLE, ""))


def check_setting(name: str, value: Any) -> None:
    """Raises a ValueError where a setting is larger than its limit."""
    if isinstance(value, list):
        check_limit(LIMIT_OF.get(name, "count"), len(value), f"{name} has {len(value)} entries")
    elif type(value) is int and abs(value) > SMALL:
        check_limit(LIMIT_OF.get(name, "count"), value, f"{name} is {brief(value)}")


def check_limit(name: str, size: int, what: str, error: Callable[[str], Exception] = ValueError) -> None:
    """Raises unless a size is within the limit of that name."""
    most = getattr(limits(), name)
    if abs(size) > most:
        raise error(f'{what}, but at most {most} is allowed (more with {VARIABLE}="{name}={brief(abs(size))}")')
