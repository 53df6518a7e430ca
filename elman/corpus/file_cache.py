"""Data files in memory while a run is prepared: read from disk once, though several passes read them."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

LIMIT = 256 * 2**20  # bytes of all files together; those beyond are read from disk each time


class _Files:
    def __init__(self) -> None:
        self.contents: dict[Path, bytes] = {}
        self.digests: dict[Path, bytes] = {}
        self.free = LIMIT


_files: ContextVar[_Files | None] = ContextVar("files", default=None)


@contextmanager
def cached_files() -> Iterator[None]:
    """Inside, `open_file` reads each file of moderate size once, and `file_digest` hashes each file once."""
    token = _files.set(_Files())
    try:
        yield
    finally:
        _files.reset(token)


def open_file(path: Path) -> BinaryIO:
    files = _files.get()
    if files is None:
        return path.open("rb")
    if path not in files.contents:
        if path.stat().st_size > files.free:
            return path.open("rb")
        files.contents[path] = path.read_bytes()
        files.free -= len(files.contents[path])
    return BytesIO(files.contents[path])


def file_digest(path: Path) -> bytes:
    """SHA-256 of a file's bytes."""
    files = _files.get()
    if files is not None and path in files.digests:
        return files.digests[path]
    with open_file(path) as file:
        digest = hashlib.file_digest(cast(Any, file), "sha256").digest()
    if files is not None:
        files.digests[path] = digest
    return digest
