"""Tokenizers of pairs: one for sources and one for targets, or one for both."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, SerializeAsAny

from elman.config import Config
from elman.pipeline.tasks.settings import pick
from elman.tokenizers import TOKENIZERS


class Auto(Config):
    """Chosen by the data: characters for texts of one word, else subwords."""

    type: Literal["auto"] = "auto"


def _side(settings: Any) -> Config:
    """A tokenizer's settings, by its name or in full."""
    settings = {"type": settings} if isinstance(settings, str) else settings
    if isinstance(settings, Mapping) and settings.get("type") == "auto":
        return Auto.make(settings, "tokenizer")
    return pick(TOKENIZERS, "tokenizer", settings)


Side = Annotated[SerializeAsAny[Config], BeforeValidator(_side)]


class PairTokenizers(Config):
    """How sources and targets become tokens."""

    type: Literal["pair"] = "pair"
    source: Side = Auto()
    """Tokenizer of the source: its name, or its settings; auto takes characters where most texts are one word, words
    where texts are single signs apart, else bpe."""
    target: Side = Auto()
    """Tokenizer of the target."""
    shared: bool = False
    """One tokenizer, learned from both; needed for model.shared_embeddings."""


def suggest_tokenizer(texts: Iterable[str]) -> str:
    """Characters for texts of one word; words for single signs apart, as phones are written; else subwords."""
    counts = [text.split() for text in texts]
    if sum(len(words) <= 1 for words in counts) * 2 > len(counts):
        return "character"
    words = [word for text in counts for word in text]
    return "word" if sum(map(len, words)) < 2 * len(words) else "bpe"
