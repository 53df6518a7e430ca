"""A folder that proves itself: a manifest with the length and SHA-256 of each file, and of its own text."""

import json
import os
import stat
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

from elman.errors import CheckpointError

MANIFEST = "manifest.json"
SCHEMA = 1
LONGEST = 2**16  # bytes of a manifest; ours take a few hundred


class NewerSchema(CheckpointError):
    """Whole, but from a later version: to be refused by name, never skipped as if it were damaged."""


def seal(step: int, contents: dict[str, bytes]) -> bytes:
    """The manifest of these files."""
    files = {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in contents.items()}
    return _text({"schema": SCHEMA, "step": step, "files": files})


def verified(folder: Path, step: int, allowed: Collection[str]) -> dict[str, bytes]:
    """Every file of the folder, manifest included, read once and checked; CheckpointError says what is wrong."""
    if not stat.S_ISDIR(_status(folder).st_mode):
        raise CheckpointError(f"{folder}: not a folder")
    text = _read(folder / MANIFEST, at_most=LONGEST)
    manifest = _parse(text, folder / MANIFEST)
    if manifest.get("step") != step:
        raise CheckpointError(f"{folder}: holds step {manifest.get('step')}, so it was renamed or swapped")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise CheckpointError(f"{folder / MANIFEST}: lists no files")
    contents = {}
    for name, entry in files.items():
        if name not in allowed:
            raise CheckpointError(f"{folder / MANIFEST}: lists {name!r}, which is none of {', '.join(sorted(allowed))}")
        contents[name] = _read(folder / name, exactly=entry.get("bytes"))
        if sha256(contents[name]).hexdigest() != entry.get("sha256"):
            raise CheckpointError(f"{folder / name}: its SHA-256 is not the one in the manifest")
    return contents | {MANIFEST: text}


def _text(body: dict[str, Any]) -> bytes:
    own = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps(body | {"sha256": own}, indent=1, sort_keys=True) + "\n").encode()


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    try:
        body = json.loads(text)
        body.pop("sha256")
        whole = _text(body) == text
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError):
        whole = False
    if not whole:
        raise CheckpointError(f"{path}: torn or changed")
    schema = body.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise NewerSchema(f"{path}: schema {schema}, but this version reads {SCHEMA}: pip install --upgrade elman")
    if schema != SCHEMA:
        raise CheckpointError(f"{path}: unknown schema {schema!r}")
    return body


def _status(path: Path) -> os.stat_result:
    try:
        return os.lstat(path)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error


def _read(path: Path, *, exactly: Any = None, at_most: int | None = None) -> bytes:
    """The bytes of a regular file whose length is known before any are read; links, pipes and devices are refused."""
    if not stat.S_ISREG(_status(path).st_mode):
        raise CheckpointError(f"{path}: not a regular file")
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, os.O_RDONLY | careful), "rb") as file:
            status = os.fstat(file.fileno())  # again: the name may have been given to something else meanwhile
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"{path}: not a regular file")
            if at_most is not None and status.st_size > at_most:
                raise CheckpointError(f"{path}: {status.st_size} bytes, more than any manifest has")
            if at_most is None and status.st_size != exactly:
                raise CheckpointError(f"{path}: {status.st_size} bytes, but the manifest says {exactly}")
            return file.read(status.st_size)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
