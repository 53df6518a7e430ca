"""A tokenizer as a section of model.bin (text.h), and the headers that encode with it. Each scheme is checked to be as
the C code has it, since a tokenizer's file may say otherwise."""

import json
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from elman.errors import ConfigError
from elman.export import unicode_tables as tables
from elman.tokenizers import BPE, EOS_ID, Byte, Character, Tokenizer, Word
from elman.tokenizers.schemes import LETTERS, SPACE

LONGEST = 1 << 15  # bytes of a word, as in text.h


class Encoder(NamedTuple):
    """Headers in the order of their includes, and what unicode.h says: settings of theirs, and tables."""

    parts: list[str]
    unicode: str


def encoder(tokenizer: Tokenizer) -> Encoder:
    """How the C library encodes as this tokenizer does; an error if it cannot."""
    scheme = SCHEMES.get(type(tokenizer))
    if scheme is None:
        known = ", ".join(kind.name for kind in SCHEMES)
        raise ConfigError(f"the tokenizer is of type {tokenizer.name}; the C library encodes with {known}")
    own = tokenizer.config.model_copy(update={"min_frequency": 1})
    if _steps(tokenizer.library) != _steps(type(tokenizer).train(own, ["a"]).library):
        raise ConfigError(f"the tokenizer's file has other steps than those of a {tokenizer.name} tokenizer")
    return scheme(tokenizer)


def section(tokenizer: Tokenizer, opening: Sequence[int] = ()) -> bytes:
    """The vocabulary, and how it is searched, as text.h reads it."""
    spellings = tokenizer.spellings
    if max(map(len, spellings)) > LONGEST:
        raise ConfigError(
            f"the longest token has {max(map(len, spellings))} bytes; the C library has room for {LONGEST}"
        )
    searched = isinstance(tokenizer, Word | Character)
    words = (
        sorted((n for n in range(tokenizer.vocab_size) if n != EOS_ID), key=spellings.__getitem__) if searched else []
    )
    pairs, ranks, merged = _merges(tokenizer) if isinstance(tokenizer, BPE) else ([], [], [])
    unknown = -1 if tokenizer.unk_id is None else tokenizer.unk_id
    marks = tokenizer.vocab_size, tokenizer.eos_id, tokenizer.start_id, unknown
    letters = [tokenizer.vocabulary[LETTERS[byte]] for byte in range(256)] if isinstance(tokenizer, BPE) else []
    sizes = sum(map(len, spellings)), len(words), len(letters), len(pairs), len(opening)
    parts = [struct.pack("<9q", *marks, *sizes), _numbers([0, *accumulate(map(len, spellings))]), b"".join(spellings)]
    parts += [_numbers(words), _numbers(letters)]
    parts += [np.array(pairs, np.uint64).tobytes(), _numbers(ranks), _numbers(merged), _numbers(opening)]
    return b"".join(part.ljust(-(-len(part) // 8) * 8, b"\0") for part in parts)


def _merges(tokenizer: Tokenizer) -> tuple[list[int], list[int], list[int]]:
    """Pairs of tokens in order, the rank of each, and what it becomes."""
    vocabulary = tokenizer.vocabulary
    found: dict[int, tuple[int, int]] = {}
    for rank, (left, right) in enumerate(json.loads(tokenizer.library.to_str())["model"]["merges"]):
        pair = vocabulary[left] << 32 | vocabulary[right]
        found[pair] = (rank, vocabulary[left + right])
    pairs = sorted(found)
    return pairs, [found[pair][0] for pair in pairs], [found[pair][1] for pair in pairs]


def _numbers(values: Sequence[int]) -> bytes:
    return np.array(values, np.uint32).tobytes()


def _steps(library: Any) -> dict[str, Any]:
    """What a library's tokenizer does, without its vocabulary."""
    content = json.loads(library.to_str())
    model = {name: value for name, value in content.pop("model").items() if name not in ("vocab", "merges", "elman")}
    return {**content, "model": model}


def _byte(_: Tokenizer) -> Encoder:
    return Encoder(["byte.h"], "")


def _bpe(_: Tokenizer) -> Encoder:
    return Encoder(["bpe.h"], _define("MERGES") + tables.word_classes(r"\p{L}", r"\p{N}", r"\s"))


def _word(tokenizer: Tokenizer) -> Encoder:
    marks = tokenizer.config.split == "punctuation"
    text = _define("PUNCTUATION" * marks) + _define("LOWERCASE" * tokenizer.config.lowercase)
    text += tables.word_classes(f"[{SPACE}]", *([r"[\p{P}\p{S}]"] if marks else []))
    return Encoder(["word.h"], text + (tables.lower_case() if tokenizer.config.lowercase else ""))


def _character(tokenizer: Tokenizer) -> Encoder:
    form = tokenizer.config.normalize
    if form == "none":
        return Encoder(["character.h"], "")
    text = _define("NORMALIZE") + _define("COMPOSE" * (form == "nfc"))
    return Encoder(["normalize.h", "character.h"], text + tables.normalization(form == "nfc"))


def _define(name: str) -> str:
    return f"#define {name}\n" if name else ""


SCHEMES: dict[type[Tokenizer], Callable[[Tokenizer], Encoder]] = {
    Byte: _byte, BPE: _bpe, Character: _character, Word: _word,
}  # fmt: skip
