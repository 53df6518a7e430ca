"""Synthetic languages with exactly known distributions and entropy."""

from collections.abc import Mapping
from typing import Any

from elman.corpus.synthetic import agreement, formal  # noqa: F401  (they register themselves)
from elman.corpus.synthetic.language import END, LANGUAGES, Language, MinimalPair
from elman.errors import ConfigError

__all__ = ["END", "LANGUAGES", "Language", "MinimalPair", "make_language"]


def make_language(settings: Mapping[str, Any], where: str = "data.language") -> Language:
    """A language by its type and settings: `make_language({"type": "agreement", "max_phrases": 2})`."""
    settings = dict(settings)
    name = settings.pop("type", None)
    if not isinstance(name, str):
        given = "is required" if name is None else f"should be a name, but got {name!r}"
        raise ConfigError(f"{where}.type: {given}; known: {', '.join(LANGUAGES)}")
    kind = LANGUAGES[name]
    return kind(kind.Config.make(settings, where=where))
