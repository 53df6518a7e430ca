"""Limits on what a file may ask for, and on waiting, in one place. Each can be changed in the environment:

ELMAN_LIMITS="record_bytes=2e9 layers=4096" elman train ...
"""

import os
from functools import cache

from pydantic import Field

from elman.config import Config
from elman.errors import ConfigError

VARIABLE = "ELMAN_LIMITS"


class Limits(Config):
    """The largest values that are accepted. They are far above what sensible files hold."""

    yaml_bytes: int = Field(1_000_000, gt=0)
    """Size of a recipe or of a run's config.yaml."""
    json_bytes: int = Field(200_000_000, gt=0)
    """Size of a JSON file of a run, a race or a Hugging Face folder, tokenizers included."""
    rank_seconds: int = Field(120, gt=0)
    """Seconds that a process of a torchrun job waits for the others in a step; 30 times as long while rank 0 prepares,
    validates or saves."""


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
