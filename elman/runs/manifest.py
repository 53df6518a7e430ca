"""Self-verifying folders: a manifest with size and SHA-256 of each file, and of itself."""

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
MAX_BYTES = 2**16  # of a manifest; ours have a few hundred


class NewerSchema(CheckpointError):
    """Valid, but from a later version: an error, unlike damage, which is skipped."""


def make_manifest(step: int, contents: dict[str, bytes]) -> bytes:
    """The manifest of these files."""
    files = {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in contents.items()}
    return signed({"step": step, "files": files})


def read_verified(folder: Path, step: int, allowed: Collection[str]) -> dict[str, bytes]:
    """Reads and verifies every file of the folder, including the manifest; CheckpointError describes the problem."""
    if not stat.S_ISDIR(_status(folder).st_mode):
        raise CheckpointError(f"{folder}: not a folder")
    text = _read(folder / MANIFEST, at_most=MAX_BYTES)
    manifest = parse_signed(text, folder / MANIFEST)
    if manifest.get("step") != step:
        raise CheckpointError(f"{folder}: contains step {manifest.get('step')}: it was renamed or swapped")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise CheckpointError(f"{folder / MANIFEST}: lists no files")
    contents = {}
    for name, entry in files.items():
        if name not in allowed:
            raise CheckpointError(f"{folder / MANIFEST}: lists {name!r}, which is none of {', '.join(sorted(allowed))}")
        contents[name] = _read(folder / name, exactly=entry.get("bytes"))
        if sha256(contents[name]).hexdigest() != entry.get("sha256"):
            raise CheckpointError(f"{folder / name}: SHA-256 differs from the manifest")
    return contents | {MANIFEST: text}


def signed(body: dict[str, Any]) -> bytes:
    """A manifest with its own hash, as JSON."""
    body = {"schema": SCHEMA, **body}
    own = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps(body | {"sha256": own}, indent=1, sort_keys=True) + "\n").encode()


def parse_signed(text: bytes, path: Path) -> dict[str, Any]:
    """The manifest that `signed` wrote; CheckpointError if a byte of it differs."""
    try:
        body = json.loads(text)
        body.pop("sha256")
        valid = signed(body) == text
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError):
        valid = False
    if not valid:
        raise CheckpointError(f"{path}: incomplete or modified")
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
    """Reads a regular file of known size; rejects links, pipes and devices."""
    if not stat.S_ISREG(_status(path).st_mode):
        raise CheckpointError(f"{path}: not a regular file")
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, os.O_RDONLY | flags), "rb") as file:
            status = os.fstat(file.fileno())  # again: the file may have been replaced meanwhile
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"{path}: not a regular file")
            if at_most is not None and status.st_size > at_most:
                raise CheckpointError(f"{path}: {status.st_size} bytes, too large for a manifest")
            if at_most is None and status.st_size != exactly:
                raise CheckpointError(f"{path}: {status.st_size} bytes, but the manifest says {exactly}")
            return file.read(status.st_size)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
