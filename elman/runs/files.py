"""The only writer of what must survive a crash: a few operations, each behind one hook, each failure told in full.

Whatever appears under its final name is complete: it is written aside, synced, renamed, and the folder is synced.
An interrupted write leaves only names that begin with `ASIDE`, which the next holder of the run's lock removes.
"""

import errno
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from elman.errors import RunError

ASIDE = ".aside-"
CHUNK = 2**20  # bytes per write operation
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RunWarning(UserWarning):
    """Something in a run folder was not as it should be, and was worked around."""


def hook(operation: str, *paths: Path) -> None:
    """Called before each operation; tests put their own in its place, to fail, to exit, or to keep a log."""


@contextmanager
def _operation(name: str, *paths: Path, needed: int = 0) -> Iterator[None]:
    try:
        hook(name, *paths)
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in FULL:
            reason += f" ({needed} bytes needed, {_free(paths[0].parent)} bytes free)"
        raise RunError(f"{paths[0]}: cannot {name}: {reason}") from error


def write_file(path: Path, data: bytes) -> None:
    """A new file, its bytes on the disk when this returns."""
    with _operation("create", path), open(path, "xb", buffering=0) as file:
        _write(file, path, data)
        with _operation("sync", path):
            os.fsync(file.fileno())


def append(path: Path, data: bytes) -> None:
    """More bytes at the end of a file, handed to the system but not yet synced."""
    with _operation("open", path), open(path, "ab", buffering=0) as file:
        _write(file, path, data)


def truncate(path: Path, size: int) -> None:
    """Cut a file back to `size` bytes, on the disk when this returns."""
    with _operation("open", path), open(path, "r+b", buffering=0) as file:
        with _operation("truncate", path):
            os.ftruncate(file.fileno(), size)
        with _operation("sync", path):
            os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    with _operation("sync", path), open(path, "r+b", buffering=0) as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open folders
    with _operation("sync", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(path: Path) -> None:
    """With its parents, each new one synced into the one above it."""
    if not path.is_dir():
        make_folder(path.parent)
        with _operation("make", path):
            path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def rename(source: Path, target: Path) -> None:
    with _operation("rename", source, target):
        os.replace(source, target)


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it; links are removed, never followed."""
    if path.is_dir() and not path.is_symlink():
        with _operation("list", path):
            inside = sorted(path.iterdir())
        for entry in inside:
            remove(entry)
        with _operation("remove", path):
            path.rmdir()
    else:
        with _operation("remove", path):
            path.unlink()


def aside(path: Path) -> Path:
    """A name beside `path` that nobody else uses."""
    return path.with_name(f"{ASIDE}{uuid.uuid4().hex}-{path.name}")


def atomic_write(path: Path, data: bytes) -> None:
    """The whole file or none of it: what was under this name stays until the new bytes are safe."""
    beside = aside(path)
    try:
        write_file(beside, data)
        rename(beside, path)
    except BaseException:
        discard(beside)
        raise
    sync_folder(path.parent)


def discard(path: Path) -> None:
    """Try to remove what a failed write left; the failure itself is the news, so this stays quiet."""
    if os.path.lexists(path):
        with suppress(RunError):
            remove(path)


def clean_leftovers(folder: Path) -> list[Path]:
    """Remove what interrupted writes left in `folder`. Only for the holder of the run's lock: it is the only writer."""
    leftovers = sorted(folder.glob(f"{ASIDE}*"))
    for path in leftovers:
        discard(path)
        if os.path.lexists(path):
            warnings.warn(f"{path}: the leftover of an interrupted write cannot be removed", RunWarning, stacklevel=2)
    return leftovers


def require_space(folder: Path, needed: int) -> None:
    """Fail before writing anything when the disk cannot hold it."""
    with _operation("measure the free space of", folder):
        free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(f"{folder}: the disk is too full ({needed} bytes needed, {free} bytes free)")


def _write(file: FileIO, path: Path, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        with _operation("write", path, needed=len(data)):
            rest = rest[file.write(rest[:CHUNK]) :]


def _free(folder: Path) -> int | str:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return "an unknown number of"
