"""Locates data: a setting such as `data/*.txt` or `hub:owner/name` becomes a list of sources with known format."""

import glob
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

from elman.corpus.config import DataPaths, format_of
from elman.errors import DataError, nearest

STANDARD_INPUT = Path("-")
HUB = "hub:"
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
CACHE_BYTES = 256 * 2**20  # of all cached files together; those beyond are read from disk each time


@dataclass(frozen=True)
class Source:
    """A file, standard input or hub data set. `name` is used in messages; `path` is opened."""

    name: str
    path: Path
    format: str
    split: str = ""  # of a hub data set
    config: str | None = None  # of a hub data set

    @property
    def zipped(self) -> bool:
        return self.path.suffix.lower() == ".gz"


def locate(places: DataPaths, format: str = "auto", split: str = "train") -> list[Source]:
    """The sources of a setting in a fixed order; a missing one is an error."""
    listed = [places] if isinstance(places, str) else places or []
    return [source for place in listed for source in _locate(place, format, split)]


def _locate(place: str, format: str, split: str) -> Iterator[Source]:
    if place == str(STANDARD_INPUT):
        yield Source("standard input", STANDARD_INPUT, "text" if format == "auto" else format)
    elif place.startswith(HUB) or format == "hub":
        address, _, named = place.removeprefix(HUB).partition("#")
        address, _, config = address.partition("@")
        if not address:
            raise DataError(f"{place!r} is not a data set address", remedy="write hub:OWNER/NAME[@CONFIG][#SPLIT]")
        yield Source(place, Path(address), "hub", named or HUB_SPLITS[split], config or None)
    else:
        for path in _files(place):
            yield Source(str(path), path, format_of(path) if format == "auto" else format)


def _files(place: str) -> list[Path]:
    path = Path(place).expanduser()
    mode = _mode(path)
    if stat.S_ISREG(mode):
        return [path]
    if stat.S_ISDIR(mode):
        shown = (file for file in path.rglob("*") if not any(p.startswith(".") for p in file.relative_to(path).parts))
        found = [file for file in shown if _regular(file)]
        if not found:
            raise DataError("the folder contains no readable file", file=place, remedy="hidden files are ignored")
        return sorted(found)
    if mode:
        remedy = "use - to read a pipe as standard input"
        raise DataError("is a pipe or a device, neither a file nor a folder", file=place, remedy=remedy)
    if any(sign in place for sign in "*?["):
        matched = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        found = [file for file in matched if _regular(file)]
        if found:
            return found
        raise DataError("no file matches this pattern", file=place)
    neighbours = [other.name for other in path.parent.glob("*")]  # none if the folder cannot be read
    raise DataError(f"no such file or folder{nearest(path.name, neighbours)}", file=place)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:  # name too long, NUL in the name, folder without permission
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"cannot be opened: {reason}", file=str(path)[:200]) from None


def _regular(path: Path) -> bool:
    return stat.S_ISREG(_mode(path))


def spool(source: Source, owner: object) -> Source:
    """Copies standard input to a temporary file, which is deleted with its owner."""
    handle, name = tempfile.mkstemp(prefix="elman-")
    path = Path(name)
    weakref.finalize(owner, path.unlink, missing_ok=True)
    with os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return replace(source, path=path)


def digest(source: Source) -> str:
    """Hash of a source's bytes, or of the address of a remote data set."""
    total = hashlib.sha256()
    if source.format == "hub":
        total.update(repr((source.split, source.config)).encode())
        if not source.path.is_dir():
            total.update(source.path.as_posix().encode())
            return total.hexdigest()
    files = _files(str(source.path)) if source.path.is_dir() else [source.path]
    for path in files:
        try:
            total.update(file_digest(path))
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", file=source.name) from None
    return total.hexdigest()


class _FileCache:
    """Data files in memory while a run is prepared: read from disk once, though several passes read them."""

    def __init__(self) -> None:
        self.contents: dict[Path, bytes] = {}
        self.digests: dict[Path, bytes] = {}
        self.free = CACHE_BYTES


_cache: ContextVar[_FileCache | None] = ContextVar("file cache", default=None)


@contextmanager
def cached_files() -> Iterator[None]:
    """Inside, `open_file` reads each file of moderate size once, and `file_digest` hashes each file once."""
    token = _cache.set(_FileCache())
    try:
        yield
    finally:
        _cache.reset(token)


def open_file(path: Path) -> BinaryIO:
    files = _cache.get()
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
    files = _cache.get()
    if files is not None and path in files.digests:
        return files.digests[path]
    with open_file(path) as file:
        digest = hashlib.file_digest(cast(Any, file), "sha256").digest()
    if files is not None:
        files.digests[path] = digest
    return digest
