"""Reads files of the `tokenizers` library: their structure and sizes are checked before it sees them, since it panics,
aborts or multiplies texts where a file is damaged or hostile."""

import json
import os
import struct
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import ceil, prod
from pathlib import Path
from typing import Any

import tokenizers as hf

from elman.errors import DataError, ElmanError, first_line
from elman.limits import check_limit
from elman.untrusted import read_json

STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
PANIC = "PanicException"  # a BaseException, which the library does not export


def read_content(path: str | Path) -> dict[str, Any]:
    """The contents of a tokenizer.json, without truncation and padding, which no model here uses."""
    content = read_json(path, DataError, follow_links=True)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise DataError("cannot be read as a tokenizer: it has no model", file=path)
    _check_vocabulary(content, path)
    steps = [part for key in STEPS for part in _dictionaries(content.get(key)) if "type" in part]
    damage = partial(DataError, file=path)
    check_limit("tokenizer_steps", len(steps), f"a tokenizer of {len(steps)} steps", damage)
    growth = prod(max(1.0, _growth(step)) for step in steps)
    most = ceil(min(growth, 1e18))  # a map of characters that aborts the library counts as endless
    check_limit("tokenizer_growth", most, f"the tokenizer makes up to {growth:.3g} characters of one", damage)
    return {**content, "truncation": None, "padding": None}


def make_library(content: dict[str, Any], path: str | Path) -> hf.Tokenizer:
    """The library's tokenizer, tried on a short text."""
    with library_errors(path), _silent():
        library = hf.Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
        first = min(library.get_vocab().values())
        with suppress(Exception):  # a text with unknown parts may be an error, but no panic
            library.encode("a bc ä", add_special_tokens=False)
        library.decode_batch([[first], [first, first]], skip_special_tokens=False)
    return library


@contextmanager
def library_errors(path: str | Path | None = None) -> Iterator[None]:
    """Turns what the library raises into a DataError."""
    try:
        yield
    except ElmanError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        raise DataError(f"damaged tokenizer: {first_line(error)[:200]}", file=path) from None


def _check_vocabulary(content: dict[str, Any], path: str | Path) -> None:
    vocabulary, added = content["model"].get("vocab"), content.get("added_tokens")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids += [entry.get("id") for entry in added or [] if isinstance(entry, dict)] if isinstance(added, list) else []
    sized = isinstance(vocabulary, dict | list) and len(vocabulary) > 0
    if not sized or not all(isinstance(one, int) and one >= 0 for one in ids):
        raise DataError("damaged tokenizer: its vocabulary is empty or has wrong ids", file=path)
    size = max(len(vocabulary), 1 + max(ids, default=0))
    check_limit("vocabulary", size, f"a tokenizer of {size} tokens", partial(DataError, file=path))


def _dictionaries(part: Any) -> Iterator[dict[str, Any]]:
    """All objects inside a part of a file; not recursive, since a file may be nested deeply."""
    parts = [part]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield part
        parts += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []


def _growth(step: dict[str, Any]) -> float:
    """How many times as long a step can make a text."""
    kind, pattern = step["type"], step.get("pattern")
    if kind == "Precompiled" and not _is_character_map(step.get("precompiled_charsmap")):
        return float("inf")
    if kind == "Prepend":
        return 1 + len(str(step.get("prepend")))
    replaced = pattern.get("String") if isinstance(pattern, dict) else None
    return len(str(step.get("content"))) / len(str(replaced or "a")) if kind == "Replace" else 1


def _is_character_map(text: Any) -> bool:
    """Whether the library can read it: the size of a trie (uint32), the trie, the replacements. It aborts else."""
    with suppress(ValueError, TypeError, struct.error):
        data = b64decode(text)
        (size,) = struct.unpack_from("<I", data)
        return 0 < size <= len(data) - 4
    return False


@contextmanager
def _silent() -> Iterator[None]:
    """Without what a panic prints on stderr."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
